"""What runs where a run on one machine runs."""
