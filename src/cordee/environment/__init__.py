"""Names of earlier versions that compiled plug-ins carry."""
