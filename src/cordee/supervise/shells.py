"""Shells inside the job: a client's terminal on one side, a task on a node's pseudo terminal on the other."""

from __future__ import annotations

import secrets
from typing import Any, Mapping, Optional

from cordee import wire
from cordee.supervise.nodes import Node


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

    def closed(self, client: wire.Connection, error: Optional[Exception]) -> None:
        """A client went away: hang up."""
        for session in [name for name, (owner, _) in self._sessions.items() if owner is client]:
            _, node = self._sessions.pop(session)
            node.send({"t": "shell_input", "id": session, "closed": True})

    def _open(self, client: wire.Connection, message: dict[str, Any]) -> None:
        names = [name for name, node in self._nodes.items() if node.connection is not None]
        name = message.get("node") or (names[0] if names else "")
        if name not in names:
            text = f"no agent on {name or 'any node'}; connected: {', '.join(names) or 'none'}"
            client.send({"t": "shell_exit", "id": "", "code": 5, "text": text})
            return
        session = f"shell-{secrets.token_hex(4)}"
        node = self._nodes[name]
        self._sessions[session] = (client, node)
        size = {"rows": int(message.get("rows", 24)), "columns": int(message.get("columns", 80))}
        argv = [str(part) for part in message.get("argv", [])]
        node.send({"t": "shell", "id": session, "argv": argv, "term": message.get("term"), **size})
