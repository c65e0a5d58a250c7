"""The agent's side: the child that reads endpoints."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Callable

from cordee.machine.processes.module_command import module_argv
from cordee.machine.tasks.callbacks import WatchedTasks
from cordee.runs.plan import RunMetrics
from cordee.telemetry.node.blocklog import encode_facts
from cordee.telemetry.node.logged_names import GROUP
from cordee.telemetry.node.recording_child import Kind, RecordingChild

_KIND = Kind(
    name="metrics",
    again="the reader of endpoints was started again",
    given_up="endpoints are not read any more: their reader",
)


class OfferedMetrics:
    """What the ranks of a node offer to others, where the job asks for it.

    Args:
        watched: starts the child.
        node: the node's name.
        metrics: of plan.json: `scrape`.
        node_zip: where the child finds this package.
        ranks: the file in which the agent says which ranks run.
        add: takes whole records.
    """

    def __init__(
        self,
        watched: WatchedTasks,
        node: str,
        metrics: RunMetrics,
        node_zip: Path,
        ranks: Path,
        add: Callable[[bytes], None],
    ) -> None:
        self._node, self._add = node, add
        self._said: set[str] = set()
        self._needed = bool(metrics.scrape)
        asked = {"node": node, "ranks": str(ranks), "scrape": metrics.scrape}
        env = {**os.environ, "PYTHONPATH": str(node_zip), "CORDEE_NODE": node}
        command = module_argv("cordee.telemetry.node.metrics")
        self._child = RecordingChild(watched, _KIND, command, env, add, self._remark, json.dumps(asked).encode())

    def start(self) -> None:
        """Start the child, if the job asks for what it does."""
        if self._needed:
            self._child.start()

    def _remark(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            self._add(encode_facts(self._node, GROUP, time.time(), {}, {}, [text]))
