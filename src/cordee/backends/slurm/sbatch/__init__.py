"""Existing sbatch scripts, read without running anything and turned into job documents."""
