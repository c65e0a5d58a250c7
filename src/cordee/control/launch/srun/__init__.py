"""Ranks that srun starts, so that an MPI library finds the process manager it was built for."""
