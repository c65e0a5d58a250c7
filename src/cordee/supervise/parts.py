"""What a supervisor has, for those of its parts that need most of it."""

from __future__ import annotations

from typing import Mapping, NamedTuple

from cordee.backends.allocation import Allocation
from cordee.runs.checkpoint import CheckpointFinder
from cordee.runs.folder import RunFolder
from cordee.runs.journal import JournalWriter
from cordee.supervise.agents import Agents
from cordee.supervise.intake import Intake
from cordee.supervise.lanes import Lanes
from cordee.supervise.nodes import Node
from cordee.supervise.ownership import Ownership


class Parts(NamedTuple):
    """One supervisor's: where its run is, what it writes with, and who works for it."""

    folder: RunFolder
    place: Allocation
    journal: JournalWriter
    lanes: Lanes
    checkpoints: CheckpointFinder
    ownership: Ownership
    agents: Agents
    nodes: Mapping[str, Node]
    intake: Intake
