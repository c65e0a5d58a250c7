"""Slurm: jobs placed with sbatch, asked for with squeue, sacct and scontrol."""
