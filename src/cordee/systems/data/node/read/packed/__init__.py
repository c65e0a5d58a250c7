"""Samples of packed data sets, by number."""
