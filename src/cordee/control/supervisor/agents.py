"""The agents' side of a supervisor: what they say becomes events of the nodes, and what is ordered goes out when it may."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, Callable, Deque, Iterator, Optional, Union

from cordee import wire
from cordee.control.supervisor.allocation import Allocation
from cordee.control.supervisor.decisions.nodes import Node, Nodes
from cordee.control.supervisor.decisions.vocabulary import (
    Abort,
    AgentCame,
    AgentSaid,
    Close,
    Closed,
    Order,
    OrderEach,
    Send,
    Tell,
    Write,
)
from cordee.control.supervisor.machines import Machines
from cordee.core.clock import monotonic
from cordee.core.errors import WireError
from cordee.runs.journal import JournalWriter
from cordee.wire import messages
from cordee.wire.messages import FROM_AGENT, FromAgent, FromSupervisor, decode
from cordee.wire.session import Session

# Orders that go out before others have their turn: those of thousands of nodes hold the loop up otherwise.
_AT_ONCE = 250


class Agents:
    """Connections of agents, and the orders that wait for the journal.

    Args:
        machines: decide.
        nodes: the machine of the nodes.
        journal: where events are written.
        place: knows at which address a node is reached.
        attempt: returns the number of the attempt whose ranks may run, None before the first.
        changed: called whenever an agent has come or gone.
        released: called when orders that waited for the journal, and all others that were held, have gone out, or with
            the error that prevented it.
    """

    def __init__(
        self,
        machines: Machines,
        nodes: Nodes,
        journal: JournalWriter,
        place: Allocation,
        attempt: Callable[[], Optional[int]],
        changed: Callable[[], object],
        released: Callable[[Optional[BaseException]], object],
    ) -> None:
        self._machines, self._nodes, self._journal, self._place = machines, nodes, journal, place
        self._attempt, self._changed, self._released = attempt, changed, released
        self._sequences: dict[str, int] = {}
        self._held: Deque[Iterator[tuple[Order, Optional[Session]]]] = deque()
        self._releasing: Optional[asyncio.Task[None]] = None
        self._awaited = False
        self._went_out = 0
        doings: dict[type, Callable[[Any], object]] = {
            Send: lambda command: command.connection.send(command.message, command.body),
            Close: lambda command: command.connection.close(command.reason),
            Abort: lambda command: command.connection.abort(command.reason),
            Order: self._order,
            OrderEach: self._order_each,
            Write: self._write,
        }
        machines.doings.update(doings)

    def connected(self, connection: wire.Connection) -> None:
        """Take in the connection of an agent."""
        if connection.peer_name not in self._nodes.by_name:
            connection.close(f"no node {connection.peer_name!r} belongs to this run")
            return
        connection.on_message = self._message
        connection.on_close = self._closed

    def happened(self, event: Any) -> None:
        """Have something decided about the nodes."""
        self._machines.happened(self._nodes, event)

    def order(self, node: Node, message: FromSupervisor, body: bytes = b"") -> bool:
        """Give an agent an order, which is kept until it has it; False when there is no agent."""
        if node.session is None:
            return False
        self.happened(Order(node.name, message, body))
        return True

    def tell(self, node: Node, message: FromSupervisor) -> None:
        """Say something to an agent that may be lost with the connection."""
        self.happened(Tell(node.name, message))

    def _message(self, connection: wire.Connection, document: dict[str, Any], body: bytes) -> None:
        now, name = monotonic(), connection.peer_name
        message: Union[FromAgent, WireError]
        try:
            message = decode(document, FROM_AGENT)
        except WireError as error:
            message = error
        if isinstance(message, messages.Hello):
            self.happened(
                AgentCame(now, name, connection, message, self._place.address_of(connection), self._attempt())
            )
            self._changed()
        else:
            self.happened(AgentSaid(now, name, connection, document, message, body))

    def _closed(self, connection: wire.Connection, error: Optional[Exception]) -> None:
        self.happened(Closed(monotonic(), connection.peer_name, connection))
        self._changed()

    def _write(self, command: Write) -> None:
        record = self._journal.append(command.event, durable=command.durable, **command.fields)
        if command.mark:
            self._sequences[command.mark] = record["seq"]

    def _order(self, order: Order) -> None:
        """Let an order out, or hold it: until what it names is durable, while another one is held, or for a turn of the loop.

        An order is for the agent that serves the node when it is given: whoever follows that one does not get it.
        """
        if not order.after and not self._held and self._went_out < _AT_ONCE:
            self._went_out += 1
            self.happened(order)
            return
        self._hold(iter([(order, self._nodes.by_name[order.node].session)]), order.after)

    def _order_each(self, orders: OrderEach) -> None:
        """Let many orders out, a part at a time: each is made when its turn comes."""
        sessions = [self._nodes.by_name[node].session for node in orders.nodes]
        self._hold(((orders.at(place), session) for place, session in enumerate(sessions)), orders.after)

    def _hold(self, orders: Iterator[tuple[Order, Optional[Session]]], after: str) -> None:
        self._awaited = self._awaited or bool(after)
        self._held.append(orders)
        if self._releasing is None:
            self._begin_releasing()

    def _begin_releasing(self) -> None:
        self._releasing = asyncio.ensure_future(self._release())
        self._releasing.add_done_callback(self._have_released)

    async def _release(self) -> None:
        while self._held:
            for order, session in self._held[0]:
                if order.after and self._journal.durable_until <= self._sequences[order.after]:
                    await self._journal.durable()
                if self._went_out >= _AT_ONCE:
                    self._went_out = 0
                    await asyncio.sleep(0)
                if self._nodes.by_name[order.node].session is session:
                    self._went_out += 1
                    self.happened(order)
            self._held.popleft()

    def _have_released(self, releasing: asyncio.Task[None]) -> None:
        self._releasing = None
        if releasing.cancelled():
            return
        error = releasing.exception()
        if self._held and error is None:  # what came since it ended
            self._begin_releasing()
        elif self._awaited or error is not None:
            self._awaited = False
            self._released(error)
