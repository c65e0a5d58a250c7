"""Prometheus endpoints of ranks, read in a child of the agent."""
