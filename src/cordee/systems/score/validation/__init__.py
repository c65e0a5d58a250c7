"""Labelled workloads: what a score must say of them, run on real hardware and compared."""
