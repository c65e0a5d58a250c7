"""Checks of what lies between two nodes: `pair.*` of the table."""
