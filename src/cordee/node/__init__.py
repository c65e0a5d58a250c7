"""Names of earlier versions that batch scripts carry."""
