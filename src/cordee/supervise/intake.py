"""Takes the agents' telemetry: stored first, acknowledged after, so that a killed supervisor loses nothing it had accepted."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Optional

from cordee.runs.blocklog import BlockLogWriter
from cordee.runs.journal import JournalWriter
from cordee.supervise.clocks import Clocks
from cordee.supervise.data_read import DataRead
from cordee.supervise.nodes import Node

_ACKNOWLEDGE_S = 1.0


class Intake:
    """The block log's only writer in this epoch.

    Args:
        folder: the run's `telemetry/` folder.
        epoch: this supervisor's epoch.
        journal: where it is written how far the ranks are in their data.
    """

    def __init__(self, folder: Path, epoch: int, journal: JournalWriter) -> None:
        self._log = BlockLogWriter(folder, epoch)
        self._waiting: dict[Node, int] = {}
        self._next_flush = time.monotonic() + _ACKNOWLEDGE_S
        self._steps: dict[int, int] = {}
        self.taken_bytes = 0
        self.total: Optional[int] = None
        self.lost_samples: dict[str, int] = {}
        self.capped_values: dict[int, int] = {}
        self.damaged: list[str] = []
        self.troubles: dict[str, list[str]] = {}
        self.clocks = Clocks()
        self.data = DataRead(journal)

    @property
    def step(self) -> Optional[int]:
        """The step that all ranks that log have reached."""
        return min(self._steps.values()) if self._steps else None

    @property
    def dropped_bytes(self) -> int:
        """Bytes of telemetry that the disk refused for good."""
        return self._log.dropped_bytes

    def new_attempt(self) -> None:
        """Forget the ranks' steps: the new ones begin where their checkpoint says."""
        self._steps.clear()

    def message(self, node: Node, message: dict[str, Any], body: bytes) -> None:
        """Store one telemetry message."""
        if body:
            self._log.append(body)
            self.taken_bytes += len(body)
        if message.get("log"):
            node.log = (message["log"][0], message["log"][1])
        for rank, step in message["steps"]:
            self._steps[rank] = step
        if message.get("total"):
            self.total = message["total"]
        if message.get("lost_samples"):
            self.lost_samples[node.name] = message["lost_samples"]
        if message.get("troubles"):
            self.troubles[node.name] = message["troubles"]
        if message.get("now"):
            self.clocks.hear(node.name, message["now"], time.time())
        self.data.take(message.get("data") or ())
        self.damaged += message.get("damaged") or ()
        self.capped_values.update(message.get("capped_values") or ())
        if message["sequence"] is not None:
            self._waiting[node] = message["sequence"]

    def tick(self) -> None:
        """Write what is due and acknowledge what is written."""
        now = time.monotonic()
        self._log.tick(now)
        if now >= self._next_flush:
            self._next_flush = now + _ACKNOWLEDGE_S
            self.flush()

    def end_attempt(self, attempt: int) -> None:
        """Write everything, and what more is heard of this attempt's data as soon as it is."""
        self.data.end(attempt)
        self.flush()

    def flush(self) -> None:
        """Write everything and acknowledge it; a disk that refuses gets no acknowledgement."""
        self.data.write()
        if self._log.flush():
            for node, sequence in self._waiting.items():
                node.send({"t": "ack", "sequence": sequence})
            self._waiting.clear()

    def close(self) -> None:
        """Write what is left."""
        self.flush()
        self._log.close()
