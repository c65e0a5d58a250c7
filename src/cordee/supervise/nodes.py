"""What the supervisor knows of its nodes: who is connected, since when silent, and how it was judged."""

from __future__ import annotations

import asyncio
from typing import Any, Optional

from cordee import wire
from cordee.errors import WireError
from cordee.wire.session import Session

_AWAY_S = 2.0
# An order: its session, None where there was no agent, and its number there.
Told = tuple[Optional[Session], int]


class Node:
    """One node of the allocation.

    Attributes:
        connection: to the current agent; None while there is none.
        session: with the current agent; None before the first and once the agent is given up.
        incarnation: of the current agent; a greater one means that everything on the node was lost.
        last_heard: when the agent last said something, on the loop's clock.
        ready: whether this incarnation was set up and vetted.
        clearing_since: since when ranks are ended there that belong to no attempt of this supervisor; None: there are none.
        verdict: healthy, suspect, bad or unknown.
        unread_bytes: of what ranks logged and no telemetry has brought yet.
        queued_log_bytes: of what ranks printed and is not in the node's log yet.
        log: name and bytes of the file that the agent writes the ranks' output to.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.connection: Optional[wire.Connection] = None
        self.session: Optional[Session] = None
        self.incarnation = 0
        self.host = ""
        self.address = "127.0.0.1"
        self.pid = 0
        self.cores = 0
        self.last_heard = 0.0
        self.ready = False
        self.clearing_since: Optional[float] = None
        self.verdict = "unknown"
        self.results: list[dict[str, Any]] = []
        self.dropped_log_bytes = 0
        self.unread_bytes = 0
        self.queued_log_bytes = 0
        self._sessions = 0
        self._answering: Optional[float] = None
        self._away_s = 0.0
        self._questions = 0
        self.log: Optional[tuple[str, int]] = None

    def send(self, message: dict[str, Any], body: bytes = b"") -> bool:
        """Give the agent an order: kept until it has it, however often the connection breaks; False when there is no agent.

        An agent that leaves too much of what it was sent is cut off, and lost once it has been silent for too long.
        """
        if self.session is None:
            return False
        try:
            numbered = self.session.outbox.add(message, body)
        except WireError as error:
            self.give_up(error.text)
            return False
        if self.connection is not None:
            self.connection.send(self.session.stamped(numbered), body)
        return True

    def tell(self, message: dict[str, Any]) -> None:
        """Say something that may be lost with the connection."""
        if self.connection is not None and self.session is not None:
            self.connection.send(self.session.stamped(message))

    def renew_lease(self) -> None:
        """Let the agent's ranks run on: answers what it said last."""
        if self.session is not None and self._answering is not None:
            self.tell({"t": "lease", "of": self._answering})

    def goes_on(self, hello: dict[str, Any]) -> bool:
        """Return whether an agent that says hello is at the other end of the session: nothing was lost but a connection."""
        same = (hello["incarnation"], hello["pid"]) == (self.incarnation, self.pid)
        if self.session is None or not same:
            return False
        known = hello.get("session", "") == self.session.identifier and hello.get("seen", 0) <= self.session.outbox.last
        return known or self.session.untouched

    def meet(self, hello: dict[str, Any], epoch: int) -> None:
        """Begin a session with an agent that is new here, with nothing of an earlier one."""
        self._sessions += 1
        self.session = Session(f"{epoch}.{self._sessions}")
        self.incarnation, self.pid = hello["incarnation"], hello["pid"]
        self.host, self.cores = hello["host"], hello["cores"]
        self.ready, self.clearing_since = False, None

    def welcome(self, connection: wire.Connection, hello: dict[str, Any], epoch: int, segment: int) -> None:
        """Go on with the session over this connection: what the agent has not got yet is sent again."""
        assert self.session is not None
        if hello.get("session", "") == self.session.identifier:
            self.session.take({"seen": hello.get("seen", 0)})
        self.heard(hello)
        self.connection = connection
        about = {"epoch": epoch, "segment": segment, "session": self.session.identifier, "of": hello.get("at", 0.0)}
        self.tell({"t": "welcome", **about})
        for message, body in self.session.outbox:
            connection.send(self.session.stamped(message), body)

    def take(self, message: dict[str, Any], body: bytes) -> bool:
        """Return whether what the agent says is to be handled; what came before is not.

        Raises:
            WireError: the two ends do not agree on what was sent.
        """
        self.heard(message)
        if self.session is None:
            return False
        new = self.session.take(message, len(body))
        if self.session.owes:
            self.renew_lease()
        return new

    def heard(self, message: dict[str, Any]) -> None:
        """The agent lives; keep when, on its own clock, it said so."""
        self._away_s, self.last_heard = self.away_s, asyncio.get_running_loop().time()
        self._answering = message.get("at", self._answering)

    def give_up(self, reason: str) -> None:
        """Forget the agent and all that it was told: its ranks end when their lease is over."""
        connection, self.connection = self.connection, None
        self.session, self.clearing_since, self.ready = None, None, False
        if connection is not None:
            connection.abort(reason)

    def new_question(self) -> str:
        """Return an identifier by which the answer to a question is known."""
        self._questions += 1
        return f"{self._sessions}-{self._questions}"

    def ask(self) -> Told:
        """Say something that the agent has to acknowledge, and does so as soon as it says anything: return it for `has_taken`."""
        self.send({"t": "lease", "of": self._answering or 0.0})
        return self.told()

    def told(self) -> Told:
        """Return the order that the agent was given last, for `has_taken`."""
        return self.session, self.session.outbox.last if self.session is not None else 0

    def has_taken(self, order: Told) -> bool:
        """Return whether the agent has got an order."""
        session, number = order
        return session is not None and session is self.session and session.outbox.acknowledged >= number

    @property
    def away_s(self) -> float:
        """Seconds, all in all, for which nothing was heard of the agent though it says something all the time."""
        silent = self.silent_s
        return self._away_s + (silent if self.connection is None or silent > _AWAY_S else 0.0)

    @property
    def silent_s(self) -> float:
        """Seconds since the agent last said anything."""
        return asyncio.get_running_loop().time() - self.last_heard


def usable(nodes: list[Node]) -> list[Node]:
    """Return the nodes that may hold ranks, the healthy before the suspect, otherwise in their order."""
    ready = [node for node in nodes if node.connection is not None and node.ready]
    good = [node for node in ready if node.verdict == "healthy"]
    return good + [node for node in ready if node.verdict == "suspect"]
