"""Libraries that learn of the run right after their import: metrics and places are recorded, JAX finds its world."""
