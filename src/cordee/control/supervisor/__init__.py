"""The supervisor inside the allocation, and the keeper that stands in for a scheduler on one machine."""
