"""The agent on every node: the only launcher of tasks, ranks, checks and samplers."""
