"""What nodes are given before ranks start, such as data and services: one port that any number of systems fill."""

from __future__ import annotations

import asyncio
from typing import Sequence

from cordee.control.supervisor.decisions.nodes import Node
from cordee.control.supervisor.decisions.vocabulary import DataStaged
from cordee.control.supervisor.preparer import PreparedAllocation
from cordee.core.clock import monotonic
from cordee.core.parts import load
from cordee.wire.messages import Staging

# In `node_parts` of the plan, before the name of a system.
PORT = "stager/"
# In `node_parts` of the plan, before the name of a system: a function that looks at what was staged before ranks can read it.
# `look(target, key, part)` gets its path, the digest of what it is, and the system's part of the plan; it returns findings,
# and what has an error is refused. It is called in the process that stages, on one of the nodes that have the same.
LOOK_PORT = "look/"
_CLOSE_S = 15.0


class DataStager:
    """Has what a system keeps for ranks brought to nodes. Called in the supervisor's loop, where nothing waits; made anew by each
    supervisor, as `make(allocation)`; of its errors, those of `stage` end the run."""

    def __init__(self, allocation: PreparedAllocation) -> None:
        self.allocation = allocation

    async def stage(self, chosen: Sequence[str]) -> DataStaged:
        """Have all of it on these nodes; what is there already is found."""
        raise NotImplementedError("a stager stages data")

    def message(self, node: Node, message: Staging) -> None:
        """Take what the system's part on a node says."""

    def lost(self, node: Node, reason: str) -> None:
        """A node's agent is gone."""

    async def close(self) -> None:
        """The run, or its segment, is over, and its ranks are gone; given up after a quarter of a minute."""


class Stagers(DataStager):
    """All of them, in the order of their systems' names.

    Raises:
        CordeeError: the plan names one that is not there.
    """

    def __init__(self, allocation: PreparedAllocation) -> None:
        super().__init__(allocation)
        parts = sorted(allocation.plan.node_parts.items())
        self._all: dict[str, DataStager] = {
            port[len(PORT) :]: load(part)(allocation) for port, part in parts if port.startswith(PORT)
        }

    async def stage(self, chosen: Sequence[str]) -> DataStaged:
        """Have each do its part, one after the other; the first that cannot decides."""
        for one in self._all.values():
            staged = await one.stage(chosen)
            if staged.refusal is not None or staged.lost is not None:
                return staged
        return DataStaged(monotonic())

    def message(self, node: Node, message: Staging) -> None:
        """Give it to the system that it is from."""
        if message.system in self._all:
            self._all[message.system].message(node, message)

    def lost(self, node: Node, reason: str) -> None:
        """Tell each."""
        for one in self._all.values():
            one.lost(node, reason)

    async def close(self) -> None:
        """Wait for all of them, and not for long."""
        if self._all:
            _, late = await asyncio.wait(
                [asyncio.ensure_future(one.close()) for one in self._all.values()], timeout=_CLOSE_S
            )
            for task in late:
                task.cancel()
