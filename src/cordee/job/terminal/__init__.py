"""What commands about jobs and runs take: options, and the run that is meant."""
