"""Staging on the nodes of a run: see `cordee.systems.data.stage`."""
