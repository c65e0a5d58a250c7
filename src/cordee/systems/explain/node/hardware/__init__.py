"""Faults of a node's hardware and kernel while the ranks run: what is read, what counts as worth telling, and how often it is told."""
