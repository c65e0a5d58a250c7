"""Commands of the system explain."""
