"""`cordee service load` and `cordee service batch`."""
