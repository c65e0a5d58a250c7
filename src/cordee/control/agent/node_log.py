"""What ranks, set-up lines and checks of this node print, in one file for each segment of the run."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Callable, Optional

from cordee.control.agent.machine import NodeTasks
from cordee.control.agent.output import OutputLog
from cordee.runs.folder import say

NO_RANK = -1
# Beside those of standard output and standard error: what Cordée says of a rank.
CORDEE_STREAM = 2


class NodeLog:
    """The output of one node.

    Args:
        folder: of the run's logs.
        node: the node's name.
        machine: opens files for output.
        keep_bytes: of each segment's output, so many of the last ones stay; None: all.
        pause: called, on the loop, with True when more is printed than the disk takes, with False when it has caught up.

    Attributes:
        segment: which file is written; 0 before the first.
    """

    def __init__(
        self,
        folder: Path,
        node: str,
        machine: NodeTasks,
        keep_bytes: Optional[int],
        pause: Callable[[bool], None],
    ) -> None:
        self._keep_bytes = keep_bytes
        self._folder, self._node, self._machine, self._pause = folder, node, machine, pause
        self._loop = asyncio.get_running_loop()
        self._logs: list[OutputLog] = []
        self.segment = 0

    def begin(self, segment: int) -> None:
        """Write into the file of this segment from now on."""
        if self._logs and segment == self.segment:
            return
        if self._logs:
            self._logs[-1].end()
        self.segment = segment
        path = self._folder / f"{self._node}-{segment}.log"
        self._logs.append(self._machine.log(path, self._pressure, self._keep_bytes))

    def write(self, rank: int, stream: int, attempt: int, data: bytes) -> None:
        """Keep what a rank printed."""
        if self._logs:
            self._logs[-1].write(rank, stream, attempt, data)

    def write_own(self, stream: int, data: bytes) -> None:
        """Keep what set-up lines, checks and the container's engine print: it belongs to no rank."""
        self.write(NO_RANK, stream, 0, data)

    @property
    def written(self) -> Optional[tuple[str, int]]:
        """Name of the file, and bytes in it so far; None before the first."""
        return self._logs[-1].written if self._logs else None

    @property
    def dropped_bytes(self) -> int:
        """Bytes that are in no file and will not be."""
        return sum(log.dropped_bytes for log in self._logs)

    @property
    def queued_bytes(self) -> int:
        """Bytes that are in no file yet."""
        return sum(log.queued_bytes for log in self._logs)

    def close(self) -> None:
        """Write what is left, and say so where the disk does not take it."""
        for log in self._logs:
            if not log.close():
                say(f"cordee agent {self._node}: {log.dropped_bytes} bytes of output could not be written to its log")

    def _pressure(self, full: bool) -> None:
        self._loop.call_soon_threadsafe(self._pause, full)
