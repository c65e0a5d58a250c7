"""The child of an agent that reads endpoints and receives OTLP: `python -s -m cordee.telemetry.node.metrics`, asked by standard input.

It reads one JSON document: `node`, `ranks` (the file in which the agent says which ranks run), `scrape` (as in plan.json),
`port` and `secret` of the receiver, or no `port`. It writes records of the block log to standard output until it is killed.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any, Mapping, Optional, Sequence

from cordee.telemetry.node.logged_names import GROUP
from cordee.telemetry.node.metrics.otlp import Batch
from cordee.telemetry.node.metrics.points import PointSeries, Recorded
from cordee.telemetry.node.metrics.receiver import Receiver
from cordee.telemetry.node.metrics.scraping import PATIENCE_S, Scraping
from cordee.telemetry.node.metrics.streams import Streams
from cordee.telemetry.node.ranks_file import read_ranks
from cordee.telemetry.node.samplers.device_facts import DeviceFacts

RANK_ATTRIBUTE = "cordee.rank"
_TURN_S = 0.5
_LATE_S, _EARLY_S = 3600.0, 60.0


class Collector:
    """What one node's ranks offer.

    Args:
        asked: the document that the agent gives.
    """

    def __init__(self, asked: Mapping[str, Any]) -> None:
        self._streams = Streams(asked["node"])
        self._told = DeviceFacts(asked["node"], GROUP)
        self._ranks_file = Path(asked["ranks"])
        self._ranks: Mapping[int, Mapping[str, Any]] = {}
        self._scraping = Scraping(asked["scrape"], self._scraped, float(asked.get("patience_s", PATIENCE_S)))
        self._series = PointSeries()
        self._guard = threading.Lock()
        self._unattributed = 0
        self._news = threading.Event()
        self.receiver: Optional[Receiver] = None
        if asked.get("port"):
            self.receiver = Receiver(asked["port"], asked["secret"], self.received)

    def turn(self) -> bytes:
        """Begin to read what is due; return records of what has come since the last call."""
        self._ranks = read_ranks(self._ranks_file)
        self._scraping.turn(self._ranks)
        facts = self._told.changed({}, self._scraping.missing(), time.time(), self._remarks())
        return facts + self._streams.records()

    def wait(self) -> None:
        """Wait until something has come, at most half a second: what a rank sends last must not wait for its turn."""
        self._news.wait(_TURN_S)
        self._news.clear()

    def received(self, batches: Sequence[Batch]) -> None:
        """Take what a rank has sent; points without a sensible time are of now."""
        now = time.time()
        with self._guard:
            for resource, points in batches:
                rank = self._rank_of(resource)
                if rank is None:
                    self._unattributed += len(points)
                    continue
                attempt = int(self._ranks[rank].get("attempt", 0))
                owner = (rank, attempt, tuple(sorted(resource.items())))
                moments: dict[float, list[Recorded]] = {}
                for point in points:
                    moment = point.time if now - _LATE_S < point.time < now + _EARLY_S else now
                    moments.setdefault(moment, []).extend(self._series.take([point], owner))
                for moment, values in sorted(moments.items()):
                    self._streams.add("otlp", rank, attempt, moment, values)
        self._news.set()

    def _rank_of(self, resource: Mapping[str, str]) -> Optional[int]:
        """Return whose a resource is: it says so itself, or there is only one rank here."""
        said = resource.get(RANK_ATTRIBUTE, "")
        if said.isascii() and said.isdigit() and len(said) < 10 and int(said) in self._ranks:
            return int(said)
        return next(iter(self._ranks)) if len(self._ranks) == 1 and not said else None

    def _scraped(self, rank: int, attempt: int, moment: float, values: list[Recorded]) -> None:
        self._streams.add("prometheus", rank, attempt, moment, values)
        self._news.set()

    def _remarks(self) -> list[str]:
        found = self._scraping.remarks()
        if self._unattributed:
            text = "OTLP metrics were received that no rank of this node can be told for: their resource has no"
            found.append(f"{text} {RANK_ATTRIBUTE}, which OTEL_RESOURCE_ATTRIBUTES of every rank gives")
        if self.receiver is not None and self.receiver.refused:
            found.append("requests of OTLP metrics were refused; the sender was told why")
        if self._series.left_out:
            found.append("OTLP metrics have more than 10,000 series on this node; the others are left out")
        return found


def main() -> int:
    """Run it."""
    asked = json.loads(sys.stdin.buffer.read())
    records = os.dup(1)
    os.dup2(2, 1)  # what a library prints must not come between the records
    collector = Collector(asked)
    if collector.receiver is not None:
        threading.Thread(target=collector.receiver.serve_forever, daemon=True).start()
    while True:
        rest = memoryview(collector.turn())
        while rest:
            rest = rest[os.write(records, rest) :]
        collector.wait()


if __name__ == "__main__":
    sys.exit(main())
