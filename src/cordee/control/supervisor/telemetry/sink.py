"""Takes the agents' telemetry: stored first, acknowledged after, so that a killed supervisor loses nothing it had accepted."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from pathlib import Path
from typing import Callable, Optional

from cordee.control.supervisor.decisions.nodes import Node
from cordee.control.supervisor.telemetry.clocks import NodeClocks
from cordee.control.supervisor.telemetry.data_read import DataReadLog
from cordee.core.clock import monotonic, unix_s
from cordee.runs.disk import DISK, Disk
from cordee.runs.journal import JournalWriter
from cordee.runs.lane import Inline
from cordee.telemetry.node.blocklog import BlockLogWriter
from cordee.wire.messages import Ack, NodeFinding, RankFinding, Telemetry

_ACKNOWLEDGE_S = 1.0
_TOLD_AT_ONCE = 100
_MOST_WAITING_BYTES = 64 << 20
_AGAIN_S = 0.5


class TelemetrySink:
    """The block log's only writer in this epoch.

    Args:
        folder: the run's `telemetry/` folder.
        epoch: this supervisor's epoch.
        journal: where it is written how far the ranks are in their data.
        lane: what does the writing, the journal's too.
        disk: where it writes.
        tell: says something to an agent.

    Attributes:
        cut_off: the nodes that were lost while ranks logged there, and of whose channels nothing was heard since; of each
            the last step of each rank that was told.
    """

    def __init__(
        self,
        folder: Path,
        epoch: int,
        journal: JournalWriter,
        lane: Optional[Inline] = None,
        disk: Disk = DISK,
        tell: Callable[[Node, Ack], None] = lambda node, message: None,
    ) -> None:
        self._log = BlockLogWriter(folder, epoch, disk=disk)
        self._journal, self._tell = journal, tell
        self._lane = lane or Inline()
        self._bodies: list[bytes] = []
        self._waiting_bytes = self._lost_bytes = 0
        self._storing: Optional[Future[bool]] = None
        self._waiting: dict[Node, int] = {}
        self._being_stored: dict[Node, int] = {}
        self._stored: dict[Node, int] = {}
        self._next_flush = monotonic() + _ACKNOWLEDGE_S
        self._steps: dict[int, int] = {}
        self._steps_of: dict[str, dict[int, int]] = {}
        self.cut_off: dict[str, dict[int, int]] = {}
        self.taken_bytes = 0
        self.total: Optional[int] = None
        self.lost_samples: dict[str, int] = {}
        self.capped_values: dict[int, int] = {}
        self.found: list[RankFinding] = []
        self.troubles: dict[str, list[str]] = {}
        self.findings: dict[str, tuple[NodeFinding, ...]] = {}
        self.clocks = NodeClocks()
        self.data = DataReadLog(journal)

    @property
    def step(self) -> Optional[int]:
        """The step that all ranks that log have reached."""
        return min(self._steps.values()) if self._steps else None

    @property
    def dropped_bytes(self) -> int:
        """Bytes of telemetry that the disk refused for good, or did not take for so long that there was no room left."""
        return self._log.dropped_bytes + self._lost_bytes

    def new_attempt(self) -> None:
        """Forget the ranks' steps: the new ones begin where their checkpoint says."""
        self._steps.clear()
        self._steps_of.clear()

    def message(self, node: Node, message: Telemetry, body: bytes) -> None:
        """Store one telemetry message."""
        if body and self._waiting_bytes + len(body) > _MOST_WAITING_BYTES:
            self._lost_bytes += len(body)
        elif body:
            self._bodies.append(body)
            self._waiting_bytes += len(body)
            self.taken_bytes += len(body)
        if message.log:
            node.log = message.log
        self._steps.update(message.steps)
        if message.steps:
            self._steps_of.setdefault(node.name, {}).update(message.steps)
        if message.unread_bytes == 0:  # whoever came back, or followed, has read what was left
            self.cut_off.pop(node.name, None)
        if message.total:
            self.total = message.total
        if message.lost_samples:
            self.lost_samples[node.name] = message.lost_samples
        if message.troubles:
            self.troubles[node.name] = list(message.troubles)
        if message.findings:
            self.findings[node.name] = message.findings
        if message.now:
            self.clocks.hear(node.name, message.now, unix_s())
        self.data.take(message.data)
        self.found += message.found
        self.capped_values.update(message.capped_values)
        if message.sequence is not None:
            self._waiting[node] = message.sequence

    def lost(self, node: Node) -> None:
        """A node's agent is gone: its successor counts its messages anew."""
        steps = self._steps_of.pop(node.name, None)
        if steps:
            self.cut_off[node.name] = steps
        self._waiting.pop(node, None)
        self._being_stored.pop(node, None)
        self._stored.pop(node, None)

    def tick(self) -> None:
        """Write what is due; it is acknowledged once it is written."""
        now = monotonic()
        if now >= self._next_flush:
            self._next_flush = now + _ACKNOWLEDGE_S
            self.flush()

    def end_attempt(self, attempt: int) -> None:
        """Write everything, and what more is heard of this attempt's data as soon as it is."""
        self.data.end(attempt)
        self._steps_of.clear()
        self.flush()

    def flush(self) -> None:
        """Have everything written, unless the last time is not over; a disk that refuses gets no acknowledgement."""
        self.data.write()
        if self._storing is not None:
            return
        bodies, self._bodies = self._bodies, []
        waiting, self._waiting = self._waiting, {}
        self._being_stored = waiting
        until = self._journal.sequence
        self._storing = self._lane.submit(lambda: self._store(bodies))

        def stored(storing: Future[bool]) -> None:
            self._storing = None
            self._waiting_bytes -= sum(map(len, bodies))
            if storing.result() and self._journal.written_until >= until:
                telling = bool(self._stored)
                self._stored.update(waiting)
                if not telling:
                    self._tell_stored()
            else:
                self._waiting = {**waiting, **self._waiting}

        if self._storing.done():
            stored(self._storing)
        else:
            loop = asyncio.get_running_loop()
            self._storing.add_done_callback(lambda storing: loop.call_soon_threadsafe(stored, storing))

    def _tell_stored(self) -> None:
        """Acknowledge what is stored: to thousands of nodes in parts, between which others have their turn."""
        part = [(node, self._stored.pop(node)) for node in list(self._stored)[:_TOLD_AT_ONCE]]
        if self._stored:
            asyncio.get_running_loop().call_soon(self._tell_stored)
        for node, sequence in part:
            self._tell(node, Ack(sequence))

    async def close(self, most_s: float) -> bool:
        """Have all that is left written, acknowledged and made durable; return whether it is, after at most `most_s`."""
        deadline = monotonic() + most_s
        while (self._storing is not None or self._bodies or self._stored) and monotonic() < deadline:
            self.flush()
            await asyncio.sleep(0.01)
        self.flush()
        return await self.write_the_rest(deadline - monotonic())

    async def write_the_rest(self, most_s: float) -> bool:
        """Write, again and again for at most so long, what the disk has not taken for good; return whether it has now."""
        deadline = monotonic() + most_s
        while True:
            closing = asyncio.wrap_future(self._lane.submit(self._log.close))
            await asyncio.wait({closing}, timeout=max(0.0, deadline - monotonic()))
            if closing.done() and closing.result():
                return True
            if monotonic() >= deadline or isinstance(self._log.last_error, FileNotFoundError):  # nothing to write to
                return False
            await asyncio.sleep(_AGAIN_S)

    def _store(self, bodies: list[bytes]) -> bool:
        for body in bodies:
            self._log.append(body)
        return self._log.flush()
