"""Targets beside WebDataset shards: files that other libraries read, with Cordée's index beside them.

Each sample's bytes stand in one piece in these files, as they are. So the index that leads into tar shards leads into them
too: `cordee.dataset`, `cordee data verify` and `cordee data bench` read them like any packed data set.
"""
