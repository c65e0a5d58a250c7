"""Contract suites for every seam, and real parts that tests start and stop by themselves."""
