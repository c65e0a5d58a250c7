"""Checks of the file systems that a job uses: `storage.*` of the table."""
