"""Shells inside the job: a client's terminal on one side, a task on a node's pseudo terminal on the other."""

from __future__ import annotations

import secrets
from typing import Any, Mapping, Optional

from cordee import wire
from cordee.errors import EXIT_INTERNAL
from cordee.supervise.nodes import Node

_MOST_INPUT_BYTES = 1 << 20
_MOST_ARGV = 128 << 10


class Shells:
    """Relays shell sessions between clients and agents; a side that goes away ends the session.

    Args:
        nodes: the run's nodes by name.
    """

    def __init__(self, nodes: Mapping[str, Node]) -> None:
        self._nodes = nodes
        self._sessions: dict[str, tuple[wire.Connection, Node]] = {}

    def message(self, client: wire.Connection, message: dict[str, Any], body: bytes) -> None:
        """Take a message from a client."""
        kind = message.get("t")
        if len(body) > _MOST_INPUT_BYTES:
            client.close(f"more than {_MOST_INPUT_BYTES} bytes were typed at once")
            return
        if kind == "shell":
            self._open(client, message)
            return
        for session, (owner, node) in self._sessions.items():
            if owner is client and kind in ("shell_input", "shell_resize"):
                node.send({**message, "id": session}, body)

    def agent_message(self, message: dict[str, Any], body: bytes) -> None:
        """Take output or the end of a session from an agent."""
        session = self._sessions.get(message["id"])
        if session is None:
            return
        session[0].send(message, body)
        if message["t"] == "shell_exit":
            del self._sessions[message["id"]]

    def lost(self, node: Node, reason: str) -> None:
        """A node's agent is gone, and its shells with it."""
        for session in [name for name, (_, where) in self._sessions.items() if where is node]:
            client, _ = self._sessions.pop(session)
            client.send({"t": "shell_exit", "id": session, "code": EXIT_INTERNAL, "text": f"{node.name}: {reason}"})

    def closed(self, client: wire.Connection, error: Optional[Exception]) -> None:
        """A client went away: hang up."""
        for session in [name for name, (owner, _) in self._sessions.items() if owner is client]:
            _, node = self._sessions.pop(session)
            node.send({"t": "shell_input", "id": session, "closed": True})

    def _open(self, client: wire.Connection, message: dict[str, Any]) -> None:
        names = [name for name, node in self._nodes.items() if node.connection is not None]
        name = message.get("node") or (names[0] if names else "")
        if name not in names:
            self._refuse(client, f"no agent on {name or 'any node'}; connected: {', '.join(names) or 'none'}")
            return
        argv = [str(part) for part in message.get("argv", [])]
        if sum(map(len, argv)) > _MOST_ARGV:
            self._refuse(client, f"a command of more than {_MOST_ARGV} characters")
            return
        session = f"shell-{secrets.token_hex(4)}"
        node = self._nodes[name]
        self._sessions[session] = (client, node)
        size = {"rows": int(message.get("rows", 24)), "columns": int(message.get("columns", 80))}
        node.send({"t": "shell", "id": session, "argv": argv, "term": message.get("term"), **size})

    @staticmethod
    def _refuse(client: wire.Connection, text: str) -> None:
        client.send({"t": "shell_exit", "id": "", "code": EXIT_INTERNAL, "text": text})
