"""Scan: what a job loads, installs and prints is looked at before it is trusted."""
