"""Frames in front of the systems: the command line, the report, the pages."""
