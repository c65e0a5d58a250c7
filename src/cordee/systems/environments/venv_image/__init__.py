"""A Python environment of many files becomes one squashfs file that activates by being mounted."""
