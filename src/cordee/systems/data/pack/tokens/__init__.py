"""Text packed as tokens."""
