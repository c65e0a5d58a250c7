"""The ranks of a node: what they are given, how they are started, watched and ended."""
