"""Shells inside the job: a client's terminal on one side, a task on a node's pseudo terminal on the other."""

from __future__ import annotations

import secrets
from typing import Callable, Mapping, Optional, Union

from cordee import wire
from cordee.control.supervisor.decisions.nodes import Node
from cordee.core.errors import EXIT_INTERNAL
from cordee.wire import messages
from cordee.wire.messages import encode

_MOST_INPUT_BYTES = 1 << 20
_MOST_ARGV = 128 << 10

Asked = Union[messages.ClientShell, messages.ShellInput, messages.ShellResize]


class ShellRelay:
    """Relays shell sessions between clients and agents; a side that goes away ends the session.

    Args:
        nodes: the run's nodes by name.
        order: gives an agent an order.
    """

    def __init__(self, nodes: Mapping[str, Node], order: Callable[..., bool]) -> None:
        self._nodes, self._order = nodes, order
        self._sessions: dict[str, tuple[wire.Connection, Node]] = {}

    def message(self, client: wire.Connection, message: Asked, body: bytes) -> None:
        """Take a message from a client."""
        if len(body) > _MOST_INPUT_BYTES:
            client.close(f"more than {_MOST_INPUT_BYTES} bytes were typed at once")
            return
        if isinstance(message, messages.ClientShell):
            self._open(client, message)
            return
        for session, (owner, node) in self._sessions.items():
            if owner is client:
                self._order(node, message._replace(id=session), body)

    def agent_message(self, message: messages.ToClient, body: bytes) -> None:
        """Take output or the end of a session from an agent."""
        session = self._sessions.get(message.id)
        if session is None:
            return
        session[0].send(encode(message), body)
        if isinstance(message, messages.ShellExit):
            del self._sessions[message.id]

    def lost(self, node: Node, reason: str) -> None:
        """A node's agent is gone, and its shells with it."""
        for session in [name for name, (_, where) in self._sessions.items() if where is node]:
            client, _ = self._sessions.pop(session)
            client.send(encode(messages.ShellExit(session, EXIT_INTERNAL, f"{node.name}: {reason}")))

    def closed(self, client: wire.Connection, error: Optional[Exception]) -> None:
        """A client went away: hang up."""
        for session in [name for name, (owner, _) in self._sessions.items() if owner is client]:
            _, node = self._sessions.pop(session)
            self._order(node, messages.ShellInput(session, closed=True))

    def _open(self, client: wire.Connection, message: messages.ClientShell) -> None:
        names = [name for name, node in self._nodes.items() if node.connection is not None]
        name = message.node or (names[0] if names else "")
        if name not in names:
            self._refuse(client, f"no agent on {name or 'any node'}; connected: {', '.join(names) or 'none'}")
            return
        if sum(map(len, message.argv)) > _MOST_ARGV:
            self._refuse(client, f"a command of more than {_MOST_ARGV} characters")
            return
        session = f"shell-{secrets.token_hex(4)}"
        node = self._nodes[name]
        self._sessions[session] = (client, node)
        self._order(node, messages.Shell(session, message.argv, message.term, message.rows, message.columns))

    @staticmethod
    def _refuse(client: wire.Connection, text: str) -> None:
        client.send(encode(messages.ShellExit("", EXIT_INTERNAL, text)))
