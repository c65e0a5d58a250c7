"""Existing submit files, read without running anything and turned into job documents."""
