"""What a plan costs beside the memory of its GPUs: the time of a step, a goal, the host, serving."""
