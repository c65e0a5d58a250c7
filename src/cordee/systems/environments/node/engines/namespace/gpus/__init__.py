"""What GPUs add to a container."""
