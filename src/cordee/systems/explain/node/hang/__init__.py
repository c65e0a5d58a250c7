"""Whether a run hangs, told beside its lead, and what agents collected of it."""
