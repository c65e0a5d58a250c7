"""Runs as the server reads and describes them."""
