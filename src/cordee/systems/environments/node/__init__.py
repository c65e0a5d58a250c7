"""What an environment is on a node: the container that agents hold open."""
