"""Where runs run: one folder for each back end, and the seam between them and the rest of Cordée."""
