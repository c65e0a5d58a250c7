"""Fetching lists of URLs: only from where it is allowed, only what was meant, at a rate that sites bear, with an account of each."""
