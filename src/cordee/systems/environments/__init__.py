"""Container environments: an EDF becomes one canonical document, and an engine runs commands in it."""
