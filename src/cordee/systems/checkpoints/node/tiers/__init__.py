"""Checkpoints on the nodes that made them and on a neighbour, before they are on shared storage: see `docs/checkpoints.md`."""
