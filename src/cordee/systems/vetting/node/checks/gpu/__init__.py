"""Checks of GPUs: `gpu.*` of the table."""
