"""Making one squashfs file from files of many places, and reading back what is in it."""
