"""Agreeing on one step at which all ranks stop: each rank that calls `cordee.stopping` waits where it is, then the greatest wins."""

from __future__ import annotations

import asyncio
from typing import Any, Optional

from cordee.supervise.attempt import Attempt

_QUIET_S = 0.5


class StopAgreement:
    """One attempt's agreement; answers are fed in by the supervisor as agents report them."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._answers: dict[int, Optional[int]] = {}
        self._changed = asyncio.Event()

    def answered(self, answers: list[list[Any]]) -> None:
        """Take `[[rank, step or None], ...]` from one agent."""
        self._answers.update((int(rank), step) for rank, step in answers)
        self._changed.set()

    async def agree(self, most_s: float) -> Optional[int]:
        """Return the step that all ranks were told to stop at; None when no rank asks `cordee.stopping`.

        Args:
            most_s: how long to wait for ranks that use it and have not reached their next call; then those that
                wait decide.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + most_s
        for node in self._attempt.nodes:
            node.send({"t": "stop_request", "attempt": self._attempt.number})
        quiet_until = loop.time() + _QUIET_S
        while loop.time() < deadline and not self._attempt.all_ended():
            expected = [rank for rank, status in self._attempt.status.items() if status == "running"]
            if expected and all(self._answers.get(rank) is not None for rank in expected):
                break
            if not self._answers and loop.time() > quiet_until:
                return None
            self._changed.clear()
            try:
                await asyncio.wait_for(self._changed.wait(), min(_QUIET_S, max(0.01, deadline - loop.time())))
            except asyncio.TimeoutError:
                continue
        steps = [step for step in self._answers.values() if step is not None]
        if not steps:
            return None
        agreed = max(steps)
        for node in self._attempt.nodes:
            node.send({"t": "stop_at", "attempt": self._attempt.number, "step": agreed})
        return agreed
