"""What a workload reached before, with its noise, and whether a run got worse than that."""
