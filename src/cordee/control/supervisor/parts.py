"""What a supervisor has, for those of its parts that need most of it."""

from __future__ import annotations

from typing import Mapping, NamedTuple

from cordee.control.supervisor.agents import Agents
from cordee.control.supervisor.allocation import Allocation
from cordee.control.supervisor.decisions.nodes import Node
from cordee.control.supervisor.disks.lanes import Lanes
from cordee.control.supervisor.ownership import Ownership
from cordee.control.supervisor.telemetry.sink import TelemetrySink
from cordee.runs.checkpoint import CheckpointFinder
from cordee.runs.folder import RunFolder
from cordee.runs.journal import JournalWriter


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
    intake: TelemetrySink
