"""Processes as the kernel shows them: whose they are, who started them, and how ours are started."""
