"""What brings data to the nodes before ranks start: one port, filled by the system that `node_parts` of the plan names."""

from __future__ import annotations

from typing import Sequence

from cordee.control.supervisor.decisions.nodes import Node
from cordee.control.supervisor.decisions.vocabulary import DataStaged
from cordee.control.supervisor.preparer import PreparedAllocation
from cordee.wire.messages import Staging

PART = "stager"


class DataStager:
    """Has the data sets of a plan brought to nodes. Called in the supervisor's loop, where nothing waits; made anew by each
    supervisor, as `make(allocation)`; of its errors, those of `stage` end the run."""

    def __init__(self, allocation: PreparedAllocation) -> None:
        self.allocation = allocation

    async def stage(self, chosen: Sequence[str]) -> DataStaged:
        """Have all of them on these nodes; what is there already is found."""
        raise NotImplementedError("a stager stages data")

    def message(self, node: Node, message: Staging) -> None:
        """Take what the process that stages on a node says."""

    def lost(self, node: Node, reason: str) -> None:
        """A node's agent is gone."""
