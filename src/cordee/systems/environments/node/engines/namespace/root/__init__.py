"""The root of a container: an image, an overlay and mounts, put together."""
