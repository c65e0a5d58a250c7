"""Explain on the nodes: who does not go on, and what shows where it stands."""
