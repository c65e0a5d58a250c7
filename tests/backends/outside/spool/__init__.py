"""A back end of somebody else: a folder as a queue, and one machine that runs what lies in it, one run at a time."""

from __future__ import annotations

from cordee.backends import Abilities, Backend

BACKEND = Backend(
    name="spool",
    abilities=Abilities(queues=True, most_nodes=8),
    submission="spool.submission:SpoolSubmitter",
    allocation="spool.allocation:SpoolAllocation",
)
