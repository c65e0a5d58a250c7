"""The front door: one address for a service, while the nodes behind it change."""
