"""Tasks: commands that are started, heard and ended with everything that they have started."""
