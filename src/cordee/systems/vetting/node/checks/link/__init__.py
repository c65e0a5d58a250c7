"""Checks of a node's network links: `link.*` of the table."""
