"""Data sets for tests: small, packed, and what other eyes than ours find in them."""
