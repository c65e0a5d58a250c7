"""Vetting on the node side: checks, judging, and a vetting without a run."""
