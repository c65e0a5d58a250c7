"""Finding the supervisor, again and again, and not all agents at once."""

from __future__ import annotations

import asyncio
import zlib
from typing import Any, Callable, Iterator, Optional

from cordee import wire
from cordee.control.agent.machine import NodeTasks
from cordee.core.errors import CordeeError
from cordee.runs.folder import RunFolder, say

_PAUSE_S = 0.02
_SLOWER = 1.3
# A few agents look for a supervisor every second; of thousands, each comes to the run's folder every eight seconds or so.
_MOST_S, _MOST_OF_MANY_S, _MANY_NODES = 1.0, 8.0, 500.0
_KEEPER_AFTER_S = 3.0
# A supervisor that kept a connection for so long was one, though it led nobody yet, as while its disk stands still.
_STAYED_S = 5.0


class SupervisorSearch:
    """Connects an agent to its supervisor.

    Args:
        folder: the run's, where the supervisor is named.
        node: the agent's node.
        nodes: how many of them the run has.
        machine: makes connections.
        orphan_s: after which it gives up.
        start_keeper: called every few seconds while there is no supervisor: keeper and supervisor may both be dead.

    Attributes:
        refused: why there was none the last time.
    """

    def __init__(
        self,
        folder: RunFolder,
        node: str,
        nodes: int,
        machine: NodeTasks,
        orphan_s: float,
        start_keeper: Optional[Callable[[], None]],
    ) -> None:
        self._folder, self._node, self._nodes, self._machine = folder, node, nodes, machine
        self._orphan_s, self._start_keeper = orphan_s, start_keeper
        self._pauses: Optional[Iterator[float]] = None
        self._deadline = self._next_keeper = self._connected = 0.0
        self.refused = ""

    def found(self) -> None:
        """Say that the supervisor that was connected leads this agent: what comes after it is looked for anew."""
        self._pauses = None

    async def connect(self, ending: asyncio.Event, **handlers: Any) -> Optional[wire.Connection]:
        """Return a connection; None when the agent ends, or there was no supervisor for too long, or no run any more.

        A supervisor that sends this agent away at once, as one that was superseded does, was none: the search goes on.

        Args:
            ending: set when the agent ends.
            handlers: as `wire.connect` has them.
        """
        now = asyncio.get_running_loop().time
        if self._pauses is None or now() - self._connected > _STAYED_S:
            self._pauses = pauses(self._node, self._nodes)
            self._deadline, self._next_keeper = now() + self._orphan_s, now() + _KEEPER_AFTER_S
            self.refused = ""
        elif now() > self._deadline:
            return None
        else:
            await asyncio.sleep(next(self._pauses))
        while not ending.is_set():
            try:
                connection = await self._machine.connect(self._folder, self._node, **handlers)
                self._connected = now()
                return connection
            except (OSError, asyncio.TimeoutError, CordeeError) as error:
                if str(error) != self.refused:
                    self.refused = str(error)
                    say(f"cordee agent {self._node}: no supervisor yet: {self.refused}")
            if now() > self._deadline or not await self._machine.has(self._folder):
                break
            if self._start_keeper is not None and now() > self._next_keeper:
                self._next_keeper = now() + _KEEPER_AFTER_S
                self._start_keeper()
            await asyncio.sleep(next(self._pauses))
        return None


def pauses(node: str, nodes: int) -> Iterator[float]:
    """Yield, without end, the seconds between two looks of a node's agent for its supervisor, given how many nodes there are.

    The more nodes, the longer; nodes that lost one supervisor come at different times.
    """
    most_s = max(_MOST_S, _MOST_OF_MANY_S * min(1.0, nodes / _MANY_NODES))
    pause_s = min(_PAUSE_S * max(1.0, most_s), 1.0)
    while True:
        spread = zlib.crc32(f"{node} {pause_s}".encode()) % 256 / 255
        yield pause_s * (0.7 + 0.6 * spread)
        pause_s = min(pause_s * _SLOWER, most_s)
