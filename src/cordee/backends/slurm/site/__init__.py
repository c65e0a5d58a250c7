"""What a Slurm says of itself, as the values of a cluster's profile."""
