"""Where a run's time went: pure functions from its state."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
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
_BETWEEN = ("connect", "vet", "setup", "start", "restart")


@dataclass(frozen=True)
class PhaseShare:
    """Seconds of one kind of phase, and their share (0-1) of the whole run."""

    name: str
    seconds: float
    share: float
    meaning: str


@dataclass(frozen=True)
class LostTime:
    """What restarts cost.

    Attributes:
        between_s: seconds after the first attempt began in which no rank ran; waiting in a queue is not counted.
        repeated_s: seconds of training that had to be done again, None when the ranks logged no steps.
        repeated_steps: steps done again, None when the ranks logged no steps.
    """

    between_s: float
    repeated_s: float | None
    repeated_steps: int | None


def phase_shares(state: RunState, now: float | None = None) -> list[PhaseShare]:
    """Return the time of each kind of phase, in the order of their first appearance; an open phase lasts until `now`."""
    now = time.time() if now is None else now
    seconds: dict[str, float] = {}
    for phase in state.phases:
        end = phase.end if phase.end is not None else (state.ended_at or now)
        seconds[phase.name] = seconds.get(phase.name, 0.0) + max(0.0, end - phase.start)
    total = sum(seconds.values()) or 1.0
    return [PhaseShare(name, value, value / total, MEANING.get(name, "")) for name, value in seconds.items()]


def lost_time(state: RunState, steps: Mapping[int, Sequence[tuple[int, float]]], now: float | None = None) -> LostTime:
    """Return what restarts cost.

    Args:
        steps: by attempt, (step, UTC epoch seconds) of what its ranks logged, in any order.
        now: an open phase lasts until then.
    """
    now = time.time() if now is None else now
    began = state.attempts[0]["started_at"] if len(state.attempts) > 1 else now
    between = 0.0
    for phase in state.phases:
        if phase.name in _BETWEEN and phase.start > began:
            end = phase.end if phase.end is not None else (state.ended_at or now)
            between += max(0.0, end - phase.start)
    if not any(steps.values()) and len(state.attempts) > 1:
        return LostTime(between, None, None)
    again_s, again = 0.0, 0
    for before, after in zip(state.attempts, state.attempts[1:], strict=False):
        logged = steps.get(before["attempt"])
        if not logged:
            continue
        resumed = after.get("resume_step")
        kept = [moment for step, moment in logged if resumed is not None and step <= resumed]
        saved_at = max(kept, default=before["started_at"])
        again += max(0, max(step for step, _ in logged) - (resumed if resumed is not None else -1))
        again_s += max(0.0, max(moment for _, moment in logged) - saved_at)
    return LostTime(between, again_s, again)
