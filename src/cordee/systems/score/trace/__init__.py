"""What is scored: the samples of a job's devices on one clock, from a run or a recording."""
