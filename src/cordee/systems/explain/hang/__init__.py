"""Hangs: what agents collected when no rank went on, read, judged and shown."""
