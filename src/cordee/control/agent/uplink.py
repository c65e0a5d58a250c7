"""The agent's end of what it and its supervisor say to each other: a session over connections that come and go, and the lease."""

from __future__ import annotations

import asyncio
from typing import Any, Callable, Optional

from cordee import wire
from cordee.control.lease import NodeLease
from cordee.core.errors import WireError
from cordee.wire.messages import Alive, FromAgent, Hello, Welcome, encode
from cordee.wire.messages import Lease as RanksMayRun
from cordee.wire.session import Session

Tell = Callable[..., None]

# Leases for which an agent waits for the supervisor's answer to its greeting: time for one more try before it is given up.
_LEASES_TO_WELCOME = 2.0


class Uplink:
    """What is said to the supervisor, and until when ranks may run.

    News is numbered and kept until the supervisor has it; all else is lost with the connection. A session belongs to one
    supervisor and one agent process: where either is another one, nothing of the earlier session counts.

    Args:
        lease_s, heartbeat_s: see `[timeouts]`.
        full: called when so much news waits for the supervisor that the session cannot go on.

    Attributes:
        connection: to the supervisor; None before the first and after each that ended.
        epoch: of the supervisor that it is a session with; 0 before the first.
        session: None before the first welcome.
    """

    def __init__(self, lease_s: float, heartbeat_s: float, full: Callable[[WireError], None]) -> None:
        self.connection: Optional[wire.Connection] = None
        self.epoch = 0
        self.session: Optional[Session] = None
        self.lease = NodeLease(lease_s)
        self._heartbeat_s, self._full = heartbeat_s, full
        self._welcomed = False
        self._said = self._connected_at = 0.0
        self._now = asyncio.get_running_loop().time

    @property
    def welcomed(self) -> bool:
        """Whether the supervisor has answered over this connection."""
        return self._welcomed

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
        self.connection, self._welcomed, self._connected_at = connection, False, self._now()

    def closed(self) -> None:
        """The connection has ended."""
        self.connection, self._welcomed = None, False

    def greet(self, hello: Hello) -> None:
        """Say who this is and what it has, the first message on a connection."""
        if self.connection is not None:
            self.connection.send(encode(hello._replace(session=self.identifier, seen=self.seen, at=self._now())))

    def welcome(self, welcome: Welcome, stamped: dict[str, Any]) -> bool:
        """Take the supervisor's answer to `greet`, and return whether another session has begun.

        What was not acknowledged of the same session is sent again.

        Args:
            welcome: what it says.
            stamped: as it came, with the session's stamps.

        Raises:
            WireError: the supervisor is older than the one before it, or does not know what was said.
        """
        fresh = begins_anew(welcome, self.epoch, self.identifier)
        if fresh:
            self.epoch = welcome.epoch
            self.session = Session(welcome.session)
        assert self.session is not None
        self.session.take(stamped)
        self.lease.renew(welcome.of)
        self._welcomed = True
        for kept, body in self.session.outbox:
            self._send(kept, body)
        return fresh

    def take(self, stamped: dict[str, Any], body: bytes) -> bool:
        """Return whether a message that came is to be handled; what came before is not.

        Raises:
            WireError: the two ends do not agree on what was sent.
        """
        if self.session is None or not self._welcomed:
            return False
        new = self.session.take(stamped, len(body))
        asked = stamped.get("t") == "lease" and "n" in stamped
        if asked or self.session.owes:
            self.say(Alive())
        return new

    def renew(self, lease: RanksMayRun, body: bytes = b"") -> None:
        """Take the supervisor's word that ranks may run on."""
        self.lease.renew(lease.of)

    def say(self, message: FromAgent, body: bytes = b"") -> None:
        """Send what need not arrive."""
        if self._welcomed:
            self._send(encode(message), body)

    def news(self, message: FromAgent, body: bytes = b"") -> None:
        """Send what must arrive: kept until the supervisor has it. Before the first welcome there is nothing to tell."""
        if self.session is None:
            return
        try:
            numbered = self.session.outbox.add(encode(message), body)
        except WireError as error:
            self._full(error)
            return
        if self._welcomed:
            self._send(numbered, body)

    def teller(self) -> Tell:
        """Return what tells news of the present session: once another has begun it is nobody's concern."""
        asked_in = self.session

        def tell(message: FromAgent, body: bytes = b"") -> None:
            if self.session is asked_in:
                self.news(message, body)

        return tell

    def beat(self) -> None:
        """Show that the agent lives, if nothing else did; end a connection over which nothing is heard any more."""
        now = self._now()
        if self._welcomed and now - self._said >= self._heartbeat_s:
            self.say(Alive())
        if self.connection is None:
            return
        if self._welcomed and self.lease.in_doubt(now):
            self.connection.abort(f"the supervisor was not heard for {self.lease.lease_s:g} s or nearly so")
        elif not self._welcomed and now - self._connected_at > _LEASES_TO_WELCOME * self.lease.lease_s:
            self.connection.abort(f"the supervisor did not answer for {now - self._connected_at:.0f} s")

    def lease_is_over(self, but_s: float = 0.0) -> bool:
        """Return whether no rank may run any more, or would have been allowed no more so many seconds ago."""
        return self.lease.over(self._now() - but_s)

    @property
    def no_lease(self) -> str:
        """Why ranks end whose lease is over."""
        return f"nothing was heard of the supervisor for {self.lease.lease_s:g} s"

    def _send(self, message: dict[str, Any], body: bytes) -> None:
        assert self.session is not None
        if self.connection is not None:
            self._said = self._now()
            self.connection.send({**self.session.stamped(message), "at": self._said}, body)


def begins_anew(welcome: Welcome, epoch: int, session: str) -> bool:
    """Return whether a supervisor's welcome begins another session than the one that the agent has.

    Args:
        welcome: what the supervisor says.
        epoch, session: of the session that the agent has; 0 and empty for none.

    Raises:
        WireError: a newer supervisor than this one leads the run.
    """
    if welcome.epoch < epoch:
        raise WireError("an older supervisor answered", given=welcome.epoch, allowed=f"{epoch} or newer")
    return welcome.session != session
