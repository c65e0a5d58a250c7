"""Keys are moved out of files into files of their own."""
