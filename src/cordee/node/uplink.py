"""The agent's end of what it and its supervisor say to each other: a session over connections that come and go, and the lease."""

from __future__ import annotations

import asyncio
from typing import Any, Callable, Optional

from cordee import wire
from cordee.errors import WireError
from cordee.node.lease import Lease
from cordee.wire.session import Session

Tell = Callable[..., None]


class Uplink:
    """What is said to the supervisor, and until when ranks may run.

    News is numbered and kept until the supervisor has it; all else is lost with the connection. A session belongs to one
    supervisor and one agent process: where either is another one, nothing of the earlier session counts.

    Args:
        lease_s, heartbeat_s: see `[timeouts]`.

    Attributes:
        connection: to the supervisor; None before the first and after each that ended.
        epoch: of the supervisor that it is a session with; 0 before the first.
        session: None before the first welcome.
    """

    def __init__(self, lease_s: float, heartbeat_s: float) -> None:
        self.connection: Optional[wire.Connection] = None
        self.epoch = 0
        self.session: Optional[Session] = None
        self.lease = Lease(lease_s)
        self._heartbeat_s = heartbeat_s
        self._welcomed = False
        self._said = 0.0
        self._now = asyncio.get_running_loop().time

    @property
    def identifier(self) -> str:
        """What both ends call the session; empty before the first welcome."""
        return self.session.identifier if self.session is not None else ""

    @property
    def seen(self) -> int:
        """How much of what the supervisor numbered has come."""
        return self.session.inbox.last if self.session is not None else 0

    @property
    def unacknowledged_bytes(self) -> int:
        """About how much news the supervisor has not got yet."""
        return self.session.outbox.bytes if self.session is not None else 0

    def connected(self, connection: wire.Connection) -> None:
        """Use this connection from now on: only `greet` goes over it before the supervisor's welcome."""
        self.connection, self._welcomed = connection, False

    def closed(self) -> None:
        """The connection has ended."""
        self.connection, self._welcomed = None, False

    def greet(self, hello: dict[str, Any]) -> None:
        """Say who this is and what it has, the first message on a connection."""
        if self.connection is not None:
            self.connection.send({**hello, "session": self.identifier, "seen": self.seen, "at": self._now()})

    def welcome(self, message: dict[str, Any]) -> bool:
        """Take the supervisor's answer to `greet`, and return whether another session has begun.

        What was not acknowledged of the same session is sent again.

        Raises:
            WireError: the supervisor is older than the one before it, or does not know what was said.
        """
        if message["epoch"] < self.epoch:
            raise WireError("an older supervisor answered", given=message["epoch"], allowed=f"{self.epoch} or newer")
        fresh = bool(message["session"] != self.identifier)
        if fresh:
            self.epoch = message["epoch"]
            self.session = Session(message["session"])
        assert self.session is not None
        self.session.take(message)
        self.lease.renew(message["of"])
        self._welcomed = True
        for kept, body in self.session.outbox:
            self._send(kept, body)
        return fresh

    def take(self, message: dict[str, Any], body: bytes) -> bool:
        """Return whether a message is to be handled; what came before is not.

        Raises:
            WireError: the two ends do not agree on what was sent.
        """
        if self.session is None or not self._welcomed:
            return False
        if message.get("t") == "lease" and message.get("of") is not None:
            self.lease.renew(message["of"])
        new = self.session.take(message, len(body))
        if self.session.owes:
            self.say({"t": "alive"})
        return new

    def say(self, message: dict[str, Any], body: bytes = b"") -> None:
        """Send what need not arrive."""
        if self._welcomed:
            self._send(message, body)

    def news(self, message: dict[str, Any], body: bytes = b"") -> None:
        """Send what must arrive: kept until the supervisor has it. Before the first welcome there is nothing to tell.

        Raises:
            WireError: so much is kept that the session cannot go on.
        """
        if self.session is None:
            return
        numbered = self.session.outbox.add(message, body)
        if self._welcomed:
            self._send(numbered, body)

    def teller(self) -> Tell:
        """Return what tells news of the present session: once another has begun it is nobody's concern."""
        asked_in = self.session

        def tell(message: dict[str, Any], body: bytes = b"") -> None:
            if self.session is asked_in:
                self.news(message, body)

        return tell

    def beat(self) -> None:
        """Show that the agent lives, if nothing else did; end a connection over which nothing is heard any more."""
        now = self._now()
        if self._welcomed and now - self._said >= self._heartbeat_s:
            self.say({"t": "alive"})
        if self._welcomed and self.connection is not None and self.lease.in_doubt(now):
            self.connection.abort(f"the supervisor was not heard for {self.lease.lease_s:g} s or nearly so")

    def lease_is_over(self) -> bool:
        """Return whether no rank may run any more."""
        return self.lease.over(self._now())

    def _send(self, message: dict[str, Any], body: bytes) -> None:
        assert self.session is not None
        if self.connection is not None:
            self._said = self._now()
            self.connection.send({**self.session.stamped(message), "at": self._said}, body)
