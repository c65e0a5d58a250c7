"""Checks of what every node has: `host.*` of the table."""
