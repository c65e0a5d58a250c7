"""Checkpoints: finding the newest complete one, and saving and restoring them from PyTorch."""
