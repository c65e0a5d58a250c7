"""Metrics that ranks offer to others: Prometheus endpoints that are read, and OTLP that is received, in a child of the agent."""
