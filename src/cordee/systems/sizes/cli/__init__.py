"""`cordee size` and `cordee diff`."""
