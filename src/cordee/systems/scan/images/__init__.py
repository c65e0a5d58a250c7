"""Images: what is in a root, a squashfs or the layers of a container image, without unpacking or mounting any."""
