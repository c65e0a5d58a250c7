"""Egress: what a run sends where, summed over its nodes, and over the runs of a site."""
