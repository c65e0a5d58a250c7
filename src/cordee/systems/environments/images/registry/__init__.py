"""Images from registries."""
