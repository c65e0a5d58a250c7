"""Data sets on the node side: the packed format and its readers."""
