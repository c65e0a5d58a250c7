"""Explain: who is slow, who hangs, where, and why."""
