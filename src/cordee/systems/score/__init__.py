"""How well a job used its GPUs: one score with its exact decomposition, a diagnosis, advice; pure functions from a trace."""
