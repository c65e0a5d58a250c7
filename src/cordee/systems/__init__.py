"""Systems, beside each other: one folder each, and none imports another."""
