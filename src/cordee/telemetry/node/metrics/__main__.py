"""The child of an agent that reads Prometheus endpoints: `python -s -m cordee.telemetry.node.metrics`, asked by standard input.

It reads one JSON document: `node`, `ranks` (the file in which the agent says which ranks run) and `scrape` (as in plan.json).
It writes records of the block log to standard output until it is killed.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any, Mapping

from cordee.telemetry.node.logged_names import GROUP
from cordee.telemetry.node.metrics.points import Recorded
from cordee.telemetry.node.metrics.scraping import PATIENCE_S, Scraping
from cordee.telemetry.node.metrics.streams import Streams
from cordee.telemetry.node.ranks_file import read_ranks
from cordee.telemetry.node.samplers.device_facts import DeviceFacts

_TURN_S = 0.5


class Collector:
    """What one node's ranks offer.

    Args:
        asked: the document that the agent gives.
    """

    def __init__(self, asked: Mapping[str, Any]) -> None:
        self._streams = Streams(asked["node"])
        self._told = DeviceFacts(asked["node"], GROUP)
        self._ranks_file = Path(asked["ranks"])
        self._scraping = Scraping(asked["scrape"], self._scraped, float(asked.get("patience_s", PATIENCE_S)))
        self._news = threading.Event()

    def turn(self) -> bytes:
        """Begin to read what is due; return records of what has come since the last call."""
        self._scraping.turn(read_ranks(self._ranks_file))
        facts = self._told.changed({}, self._scraping.missing(), time.time(), self._scraping.remarks())
        return facts + self._streams.records()

    def wait(self) -> None:
        """Wait until something has come, at most half a second."""
        self._news.wait(_TURN_S)
        self._news.clear()

    def _scraped(self, rank: int, attempt: int, moment: float, values: list[Recorded]) -> None:
        self._streams.add("prometheus", rank, attempt, moment, values)
        self._news.set()


def main() -> int:
    """Run it."""
    asked = json.loads(sys.stdin.buffer.read())
    records = os.dup(1)
    os.dup2(2, 1)  # what a library prints must not come between the records
    collector = Collector(asked)
    while True:
        rest = memoryview(collector.turn())
        while rest:
            rest = rest[os.write(records, rest) :]
        collector.wait()


if __name__ == "__main__":
    sys.exit(main())
