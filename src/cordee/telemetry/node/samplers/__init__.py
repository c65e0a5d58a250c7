"""What a node measures of itself and of its ranks."""
