"""Takes events to the machines that decide about them, and has their commands carried out, in order."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, Callable, Deque, Optional, Protocol

from cordee.control.supervisor.decisions.vocabulary import Passed
from cordee.core.clock import monotonic


class StateMachine(Protocol):
    """What decides: see `cordee.control.supervisor.decisions.vocabulary`."""

    @property
    def due(self) -> Optional[float]:
        """When it wants to be told that time has passed, None: not before something else happens."""

    def decide(self, event: Any) -> list[Any]:
        """Take an event and return what is to be done."""


class Machines:
    """One event after the other: what a command makes happen is decided on when all commands before it are carried out.

    Args:
        broke: called with a machine and what it, or what it commanded, raised; returns whether that is dealt with.

    Attributes:
        doings: what carries out a command, by its type.
    """

    def __init__(self, broke: Callable[[StateMachine, Exception], bool]) -> None:
        self._broke = broke
        self.doings: dict[type, Callable[[Any], object]] = {}
        self._events: Deque[tuple[StateMachine, Any]] = deque()
        self._deciding = False
        self._timers: dict[StateMachine, asyncio.TimerHandle] = {}

    def happened(self, machine: StateMachine, event: Any) -> None:
        """Have an event decided on, and what follows from it done.

        Raises:
            WireError: what an agent said makes no sense after what came before.
        """
        self._events.append((machine, event))
        if self._deciding:
            return
        self._deciding = True
        try:
            while self._events:
                machine, event = self._events.popleft()
                try:
                    for command in machine.decide(event):
                        self.doings[type(command)](command)
                except Exception as error:
                    if not self._broke(machine, error):
                        raise
                due = machine.due
                if due is not None:
                    self._wake(machine, due)
        finally:
            self._deciding = False

    def _wake(self, machine: StateMachine, due: float) -> None:
        timer = self._timers.get(machine)
        if timer is not None and timer.when() <= due:
            return
        if timer is not None:
            timer.cancel()
        self._timers[machine] = asyncio.get_running_loop().call_at(due, self._passed, machine)

    def _passed(self, machine: StateMachine) -> None:
        self._timers.pop(machine, None)
        self.happened(machine, Passed(monotonic()))
