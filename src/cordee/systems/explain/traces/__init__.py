"""The traces that `cordee profile` has left in a run's folder."""
