"""The commands of `cordee env` that make images and pass them on."""
