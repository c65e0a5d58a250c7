"""Slurm: one batch script per run, submitted once, asked about rarely."""
