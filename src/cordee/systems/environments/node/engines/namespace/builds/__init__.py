"""A step of a build: one command over layers on a disk, as a root that only the step believes in; and layers as archives."""
