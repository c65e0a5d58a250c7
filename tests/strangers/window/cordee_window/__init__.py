"""Windows: jobs that fit between two maintenances. A system that is not part of Cordée."""
