"""What the supervisor orders and who does it: one table by the type of the message, and what becomes of one that cannot be done."""

from __future__ import annotations

from typing import Any, Callable, Mapping

from cordee import wire
from cordee.control.agent.troubles import NodeTroubles, words_of
from cordee.control.agent.uplink import Uplink
from cordee.core.errors import WireError
from cordee.wire.messages import FROM_SUPERVISOR, Bye, Welcome, decode, kind_of

Handlers = Mapping[type, Callable[[Any, bytes], None]]


class OrderTaker:
    """Takes what the supervisor says, once and in order, to those who do it.

    Args:
        uplink: knows what is to be handled.
        troubles: where it is said that something could not be done.
        welcome: takes the answer to the agent's greeting as uplink.welcome does.
        handlers: take everything else, `(message, body)`, by its type.
    """

    def __init__(
        self,
        uplink: Uplink,
        troubles: NodeTroubles,
        welcome: Callable[[Welcome, dict[str, Any]], None],
        handlers: Handlers,
    ) -> None:
        self._uplink, self._troubles, self._welcome, self.handlers = uplink, troubles, welcome, handlers

    def receive(self, connection: wire.Connection, stamped: dict[str, Any], body: bytes) -> None:
        """Take one message; what cannot be done becomes a finding of the run, as the supervisor may wait for an answer.

        Raises:
            WireError: the two ends do not agree on what was said, and cannot go on over this connection.
        """
        if connection is not self._uplink.connection:
            return
        try:
            order = decode(stamped, FROM_SUPERVISOR)
        except WireError as error:
            if not self._uplink.welcomed:
                raise
            if self._uplink.take(stamped, body):
                self._troubles.tell(f"an order cannot be read: {error.text}: {error.given}, allowed: {error.allowed}")
            return
        if isinstance(order, Welcome):
            self._welcome(order, stamped)
        elif isinstance(order, Bye) or self._uplink.take(stamped, body):
            self._do(order, body)

    def _do(self, order: Any, body: bytes) -> None:
        try:
            self.handlers[type(order)](order, body)
        except WireError:
            raise
        except Exception as error:  # whatever it is: the supervisor would wait for an answer, and nobody know why
            self._troubles.tell(f"{kind_of(order)!r}, which the supervisor asked for, failed: {words_of(error)}")
