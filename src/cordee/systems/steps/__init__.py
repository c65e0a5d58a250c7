"""A test before the job, and steps that come after each other: runs below a run."""
