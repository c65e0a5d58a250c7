"""What a workload reached before, with its spread, and whether a run got worse than that."""
