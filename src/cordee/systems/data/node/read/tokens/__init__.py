"""Samples of token sets."""
