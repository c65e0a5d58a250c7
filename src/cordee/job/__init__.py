"""Documents that people write, read into frozen models; every fault has a line, every value a place it came from."""
