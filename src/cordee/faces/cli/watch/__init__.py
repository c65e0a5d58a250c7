"""The live terminal view of a run: what it reads, what it keeps, what it draws."""
