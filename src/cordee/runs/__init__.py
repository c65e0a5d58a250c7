"""The run folder and everything that is read from or written to it."""
