"""Data sets: surveyed, packed into few large files, and read at full speed in an order that survives any restart."""
