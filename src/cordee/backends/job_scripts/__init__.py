"""Shell scripts of jobs, read without running anything: what the readers of all schedulers share."""
