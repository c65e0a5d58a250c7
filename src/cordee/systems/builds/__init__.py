"""Build: from a recipe in an EDF to an image that is locked, known, and the same wherever and whenever it is made."""
