"""Where a run's time went: pure functions from its state."""

from __future__ import annotations

import time
from dataclasses import dataclass

from cordee.runs.state import RunState

MEANING = {
    "queue": "waiting for a place",
    "connect": "agents finding the supervisor",
    "vet": "set-up lines and host checks",
    "setup": "set-up lines",
    "start": "starting ranks",
    "train": "ranks running",
    "restart": "between an attempt and the next",
    "end": "last words",
}


@dataclass(frozen=True)
class PhaseShare:
    """Seconds of one kind of phase, and their share (0-1) of the whole run."""

    name: str
    seconds: float
    share: float
    meaning: str


def phase_shares(state: RunState, now: float | None = None) -> list[PhaseShare]:
    """Return the time of each kind of phase, in the order of their first appearance; an open phase lasts until `now`."""
    now = time.time() if now is None else now
    seconds: dict[str, float] = {}
    for phase in state.phases:
        end = phase.end if phase.end is not None else (state.ended_at or now)
        seconds[phase.name] = seconds.get(phase.name, 0.0) + max(0.0, end - phase.start)
    total = sum(seconds.values()) or 1.0
    return [PhaseShare(name, value, value / total, MEANING.get(name, "")) for name, value in seconds.items()]


def repeated_steps(state: RunState, last_steps: dict[int, int]) -> int:
    """Return how many steps were done again because of restarts.

    Args:
        last_steps: the last step that each attempt reached, by attempt.
    """
    again = 0
    for before, after in zip(state.attempts, state.attempts[1:], strict=False):
        reached = last_steps.get(before["attempt"])
        if reached is not None:
            begun = after.get("resume_step")
            again += max(0, reached - (begun if begun is not None else -1))
    return again
