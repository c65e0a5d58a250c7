"""The nodes of a vetting as its conductor sees them: who has come, who lives, who is gone."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Callable, Optional

from cordee import wire
from cordee.systems.vetting.node.checks import unknown_result
from cordee.systems.vetting.node.judge.node_link import Send, VettedNode
from cordee.systems.vetting.node.standalone.membership import VettingRoster
from cordee.systems.vetting.node.standalone.messages import Ping
from cordee.wire.messages import encode

_RANKS = {"check": "ranks"}
_MOST_NAMED = 8


class Seat:
    """One node and its tasks, of which the first runs the checks.

    Args:
        name: of the node.
        tasks: how many tasks it should have.
    """

    def __init__(self, name: str, tasks: int) -> None:
        self.name = name
        self.tasks = tasks
        self.member: Optional[VettedNode] = None
        self.living: dict[int, Optional[wire.Connection]] = {}
        self._gone: dict[int, str] = {}

    @property
    def settled(self) -> bool:
        """Whether all tasks are here, or have been and are gone."""
        return len(self.living) + len(self._gone) == self.tasks

    def take(self, local: int, connection: Optional[wire.Connection]) -> None:
        """A task has come."""
        self.living[local] = connection
        self._gone.pop(local, None)

    def lead(self, address: str, send: Send) -> VettedNode:
        """Its first task has come: return the member that the node is from now on."""
        self.member = VettedNode(self.name, send, address)
        return self.member

    def leave(self, local: int, reason: str) -> None:
        """A task is gone; with the first one goes the member."""
        if local in self.living:
            del self.living[local]
            self._gone[local] = reason
            if local == 0 and self.member is not None:
                self.member.lost(reason)

    def missing(self) -> str:
        """Return which of the node's tasks do not answer, as words; empty when all do."""
        absent = [local for local in range(self.tasks) if local not in self.living]
        words = [f"{local} ({self._gone.get(local, 'never came')})" for local in absent[:_MOST_NAMED]]
        return f"{len(absent)} of its {self.tasks} tasks do not answer: {', '.join(words)}" if absent else ""


class Roster:
    """All nodes of a vetting.

    Args:
        world: of the task that conducts.
    """

    def __init__(self, world: VettingRoster) -> None:
        self.by_name = {name: Seat(name, tasks) for name, tasks in zip(world.nodes, world.tasks)}
        self.changed = asyncio.Event()
        self._heard: dict[wire.Connection, float] = {}

    def find(self, task: str) -> tuple[Optional[Seat], int]:
        """Return the seat and the number of a task by its name on the wire; no seat when it is none of ours."""
        node, _, local = task.rpartition("/")
        seat = self.by_name.get(node)
        known = seat is not None and local.isdigit() and int(local) < seat.tasks
        return (seat, int(local)) if known else (None, 0)

    def connections(self) -> list[wire.Connection]:
        """Return the connections to all tasks that are here."""
        seats = self.by_name.values()
        return [connection for seat in seats for connection in seat.living.values() if connection is not None]

    def present(self) -> int:
        """Return how many nodes are here."""
        return sum(0 in seat.living for seat in self.by_name.values())

    def settled(self) -> bool:
        """Return whether nobody is waited for any more."""
        return all(seat.settled for seat in self.by_name.values())

    def hear(self, connection: wire.Connection) -> None:
        """A task has given a sign of life."""
        self._heard[connection] = time.monotonic()
        self.changed.set()

    def ask(self) -> None:
        """Ask all tasks for a sign of life."""
        for connection in self.connections():
            connection.send(encode(Ping()))

    def drop_silent(self, silent_s: float) -> None:
        """Give up the tasks that were asked and have given no sign of life for so long."""
        latest = time.monotonic() - silent_s
        for seat in self.by_name.values():
            for local, connection in list(seat.living.items()):
                if connection is not None and self._heard.get(connection, latest) < latest:
                    seat.leave(local, f"gave no sign of life for {silent_s:g} s")

    def hear_all(self) -> None:
        """Count the time from now on: who asks was away himself."""
        self._heard = dict.fromkeys(self._heard, time.monotonic())

    async def wait(self, deadline: float, enough: Callable[[], bool]) -> bool:
        """Wait until `enough()` or the deadline (monotonic); return whether it is true."""
        while not enough():
            self.changed.clear()
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            try:
                await asyncio.wait_for(self.changed.wait(), left)
            except asyncio.TimeoutError:
                continue
        return True

    async def roll_call(self, deadline: float) -> dict[str, dict[str, Any]]:
        """Ask all tasks for a sign of life and return, by node, the result `ranks` of those where some give none.

        Args:
            deadline: monotonic; whoever has not answered by then does not live.
        """
        began, asked = time.monotonic(), self.connections()
        self.ask()
        await self.wait(deadline, lambda: all(self._heard.get(one, 0.0) >= began or one.closed for one in asked))
        found = {}
        for seat in self.by_name.values():
            for local, connection in list(seat.living.items()):
                if connection is not None and self._heard.get(connection, 0.0) < began:
                    seat.leave(local, "gave no sign of life")
            words = seat.missing()
            if words:
                found[seat.name] = unknown_result(_RANKS, words, "silent")
        return found
