"""Repro: two runs of the same job compute the same, bit for bit, as far as its libraries can."""
