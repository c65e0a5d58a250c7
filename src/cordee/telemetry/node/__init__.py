"""Telemetry on the node side: the catalogue, samplers, the recorder, the block log."""
