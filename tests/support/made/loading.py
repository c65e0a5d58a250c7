"""A made run whose loading of data is known to the second."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cordee.core.backends import HERE
from cordee.core.units import utc_text
from cordee.runs.folder import RunFolder
from cordee.runs.journal import JournalWriter
from cordee.telemetry.node.blocklog import BlockLogWriter, encode_events
from cordee.telemetry.store.reader import Run, open_run

T0 = 1_700_000_000.0


class MadeLoading:
    """A run of four ranks on two nodes that load by `load`; what was written is a run folder like any other."""

    def __init__(self, parent: Path) -> None:
        self.folder = RunFolder.create(parent, "made-20231114T221320Z-abcd")
        self.journal = JournalWriter(self.folder.journal, "supervisor-1", 1)
        self.begin(1)
        self._log = BlockLogWriter(self.folder.telemetry, 1)
        self._offset = 0

    def begin(self, attempt: int, moment: float = T0) -> None:
        """Let an attempt begin."""
        nodes = [{"node": f"local-{node}", "ranks": [2 * node, 2 * node + 1]} for node in range(2)]
        self.journal.append(
            "attempt_started", attempt=attempt, world_size=4, nodes=nodes, time=utc_text(moment), mono=moment
        )

    def plan(self, **data: Any) -> None:
        """Write a plan with one data set."""
        about = {"name": "corpus", "place": "/store/corpus", "kind": "packed", "bandwidth_bytes_per_s": None, **data}
        self.folder.plan.write_text(json.dumps({"backend": HERE, "steps": [{"data": [about]}]}))

    def load(
        self,
        rank: int,
        seconds: int = 20,
        *,
        each_s: Mapping[str, float],
        name: str = "corpus",
        attempt: int = 1,
        start: float = T0,
        requests: Mapping[int, float] | None = None,
        states: Mapping[str, float] | None = None,
    ) -> None:
        """Tell once a second what grew by `each_s` in every second; zeros at the start."""
        for second in range(seconds + 1):
            values = {what: grew * second for what, grew in each_s.items()}
            values |= {f"requests_le/{size}": grew * second for size, grew in (requests or {}).items() if second}
            values |= states or {}
            named = {f"cordee/data/{name}/{what}": value for what, value in values.items()}
            self._offset += 64
            event = (self._offset, start + second, None, named)
            self._log.append(encode_events(f"local-{rank // 2}", rank, attempt, 0, [event]))

    def read(self) -> Run:
        """Return the run as a reader sees it."""
        assert self._log.flush()
        return open_run(self.folder.root)
