"""Programs that checks run in the ranks' own interpreter: torch and numpy are imported here, inside functions."""
