"""Ranks of a running job are profiled: ordered beside the lead, done beside the ranks."""
