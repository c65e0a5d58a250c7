"""One machine: nodes are processes under a keeper that outlives the terminal."""

from __future__ import annotations

from cordee.core.backends import Abilities, Backend

BACKEND = Backend(
    name="local",
    abilities=Abilities(most_nodes=64),
    submission="cordee.backends.local.submitter:LocalSubmitter",
    allocation="cordee.backends.local.node.allocation:LocalAllocation",
)
