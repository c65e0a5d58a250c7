"""What the supervisor knows of its nodes: who is connected, since when silent, and how it was judged."""

from __future__ import annotations

from typing import Any, Optional

from cordee import wire
from cordee.clock import monotonic


class Node:
    """One node of the allocation.

    Attributes:
        connection: to the current agent; None while there is none.
        incarnation: of the current agent; a greater one means that everything on the node was lost.
        ready: whether this incarnation was set up and vetted.
        verdict: healthy, suspect, bad or unknown.
        unread_bytes: of what ranks logged and no telemetry has brought yet.
        queued_log_bytes: of what ranks printed and is not in the node's log yet.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.connection: Optional[wire.Connection] = None
        self.incarnation = 0
        self.host = ""
        self.address = "127.0.0.1"
        self.pid = 0
        self.cores = 0
        self.last_heard = 0.0
        self.ready = False
        self.verdict = "unknown"
        self.results: list[dict[str, Any]] = []
        self.dropped_log_bytes = 0
        self.unread_bytes = 0
        self.queued_log_bytes = 0

    def send(self, message: dict[str, Any], body: bytes = b"") -> bool:
        """Send to the agent; False when there is none."""
        if self.connection is None:
            return False
        self.connection.send(message, body)
        return True

    @property
    def silent_s(self) -> float:
        """Seconds since the agent last said anything."""
        return monotonic() - self.last_heard


def usable(nodes: list[Node]) -> list[Node]:
    """Return the nodes that may hold ranks, the healthy before the suspect, otherwise in their order."""
    ready = [node for node in nodes if node.connection is not None and node.ready]
    good = [node for node in ready if node.verdict == "healthy"]
    return good + [node for node in ready if node.verdict == "suspect"]
