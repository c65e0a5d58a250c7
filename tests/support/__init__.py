"""Real parts, fakes and virtual time that tests and benchmarks use; nothing of it is installed with Cordée."""
