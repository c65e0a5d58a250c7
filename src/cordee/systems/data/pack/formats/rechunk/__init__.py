"""Arrays that lie badly for reading by samples, written anew so that each sample lies in one place."""
