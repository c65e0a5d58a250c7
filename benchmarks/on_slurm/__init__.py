"""The parts of `benchmarks/slurm.py`."""
