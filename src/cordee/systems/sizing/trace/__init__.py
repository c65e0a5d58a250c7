"""The trace: a child in the job's own Python counts what a step allocates, with tensors that have no memory."""
