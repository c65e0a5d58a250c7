"""Checkpoints: complete ones saved, found, restored; at what pace, and what they cost."""
