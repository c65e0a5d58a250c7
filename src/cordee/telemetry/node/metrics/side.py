"""The agent's side: what ranks are told of the receiver, and the child that reads and receives."""

from __future__ import annotations

import json
import os
import secrets
import socket
import time
from pathlib import Path
from typing import Any, Callable, Optional

from cordee.machine.processes.module_command import module_argv
from cordee.machine.tasks.callbacks import WatchedTasks
from cordee.runs.plan import RunMetrics
from cordee.telemetry.node.blocklog import encode_facts
from cordee.telemetry.node.logged_names import GROUP
from cordee.telemetry.node.recording_child import Kind, RecordingChild
from cordee.wire.ports import PORTS

_KIND = Kind(
    name="metrics",
    again="the reader of endpoints and OTLP was started again",
    given_up="endpoints are not read and OTLP is not received any more: their reader",
)
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_EXPORT_EVERY_MS = 5000


class OfferedMetrics:
    """What the ranks of a node offer to others, where the job asks for it.

    Args:
        watched: starts the child.
        node: the node's name.
        metrics: of plan.json: `scrape` and `otlp`.
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
        self._secret = secrets.token_urlsafe(24)
        self._reserved: Optional[socket.socket] = _reserved_port() if metrics.otlp else None
        asked: dict[str, Any] = {"node": node, "ranks": str(ranks), "scrape": metrics.scrape, "secret": self._secret}
        asked["port"] = self._port
        self._needed = bool(asked["scrape"] or metrics.otlp)
        env = {**os.environ, "PYTHONPATH": str(node_zip), "CORDEE_NODE": node}
        command = module_argv("cordee.telemetry.node.metrics")
        self._child = RecordingChild(watched, _KIND, command, env, add, self._remark, json.dumps(asked).encode())
        if metrics.otlp and self._reserved is None:
            self._remark("OTLP is not received: no port of this node is free")

    def start(self) -> None:
        """Start the child, if the job asks for what it does."""
        if self._needed:
            self._child.start()

    def environment(self, env: dict[str, str], rank: int) -> dict[str, str]:
        """Return a rank's environment with what tells OpenTelemetry where to send its metrics; a job's own word is kept."""
        if self._reserved is None:
            return env
        own = next((name for name in _ENDPOINTS if env.get(name)), None)
        if own is not None:
            self._remark(f"OTLP metrics go where the job's {own} says, and are not recorded")
            return env
        attributes = [part for part in (env.get("OTEL_RESOURCE_ATTRIBUTES"), f"cordee.rank={rank}") if part]
        told = {
            "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": f"http://127.0.0.1:{self._port}/{self._secret}/v1/metrics",
            "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL": "http/protobuf",
            "OTEL_RESOURCE_ATTRIBUTES": ",".join(attributes),
        }
        return {"OTEL_METRIC_EXPORT_INTERVAL": str(_EXPORT_EVERY_MS), **env, **told}

    @property
    def _port(self) -> int:
        return int(self._reserved.getsockname()[1]) if self._reserved is not None else 0

    def _remark(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            self._add(encode_facts(self._node, GROUP, time.time(), {}, {}, [text]))


def _reserved_port() -> Optional[socket.socket]:
    """Return a socket that holds a port of the loopback address for a child of this user, and never listens."""
    low, high = PORTS
    for port in sorted(range(low, high + 1), key=lambda _: secrets.randbits(32)):
        found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            found.bind(("127.0.0.1", port))
            return found
        except OSError:
            found.close()
    return None
