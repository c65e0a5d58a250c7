"""Recordings of other tools brought in, and recordings of ours taken out as tables."""
