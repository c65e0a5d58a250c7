"""What a run's folder says of stragglers, as data and as lines."""
