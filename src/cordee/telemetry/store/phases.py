"""Where a run's time went: pure functions from its state."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cordee.runs.state import Phase, RunState, SegmentState

MEANING = {
    "queue": "waiting for a place",
    "connect": "agents finding the supervisor",
    "vet": "set-up lines, and the vetting of nodes",
    "setup": "set-up lines",
    "stage": "bringing data to the nodes",
    "start": "starting ranks",
    "train": "ranks running",
    "restart": "between an attempt and the next",
    "end": "last words",
}
_BETWEEN = ("connect", "vet", "setup", "stage", "start", "restart")


@dataclass(frozen=True)
class PhaseShare:
    """Seconds of one kind of phase, and their share (0-1) of the whole run."""

    name: str
    seconds: float
    share: float
    meaning: str


@dataclass(frozen=True)
class SegmentTimes:
    """What became of the seconds of one segment.

    Attributes:
        queue_s: waiting for its nodes.
        held_s: having them.
        train_s: with all ranks running.
    """

    segment: SegmentState
    queue_s: float
    held_s: float
    train_s: float


@dataclass(frozen=True)
class LostTime:
    """What restarts and chaining cost.

    Attributes:
        queue_s: seconds after the first segment began in which the run waited for its next nodes.
        between_s: seconds after the first attempt began in which no rank ran; waiting in a queue is not counted.
        repeated_s: seconds of training that had to be done again, None when the ranks logged no steps.
        repeated_steps: steps done again, None when the ranks logged no steps.
        resumed_by_itself: whether an attempt that was given no checkpoint began behind the first step of the one before it.
    """

    between_s: float
    repeated_s: float | None
    repeated_steps: int | None
    queue_s: float = 0.0
    resumed_by_itself: bool = False


def phase_shares(state: RunState, now: float | None = None) -> list[PhaseShare]:
    """Return the time of each kind of phase, in the order of their first appearance; an open phase lasts until `now`."""
    now = time.time() if now is None else now
    seconds: dict[str, float] = {}
    for phase in state.phases:
        seconds[phase.name] = seconds.get(phase.name, 0.0) + _length(state, phase, now)
    total = sum(seconds.values()) or 1.0
    return [PhaseShare(name, value, value / total, MEANING.get(name, "")) for name, value in seconds.items()]


def segment_times(state: RunState, now: float | None = None) -> list[SegmentTimes]:
    """Return the times of each segment, the one that is waited for included; an open phase lasts until `now`."""
    now = time.time() if now is None else now
    found = []
    for segment in state.segment_states:
        spent = [(phase.name, _length(state, phase, now)) for phase in state.phases if phase.segment == segment.number]
        queue = sum(seconds for name, seconds in spent if name == "queue")
        train = sum(seconds for name, seconds in spent if name == "train")
        found.append(SegmentTimes(segment, queue, sum(seconds for _, seconds in spent) - queue, train))
    return found


def _length(state: RunState, phase: Phase, now: float) -> float:
    end = phase.end if phase.end is not None else (state.ended_at or now)
    return max(0.0, end - phase.start)


def lost_time(state: RunState, steps: Mapping[int, Sequence[tuple[int, float]]], now: float | None = None) -> LostTime:
    """Return what restarts and chaining cost.

    Args:
        steps: by attempt, (step, UTC epoch seconds) of what its ranks logged, in any order.
        now: an open phase lasts until then.
    """
    now = time.time() if now is None else now
    began = state.attempts[0]["started_at"] if len(state.attempts) > 1 else now
    later = [phase for phase in state.phases if phase.start > began and phase.name in _BETWEEN]
    between = sum(_length(state, phase, now) for phase in later)
    queue = sum(_length(state, phase, now) for phase in state.phases if phase.name == "queue" and phase.segment > 1)
    if not any(steps.values()) and len(state.attempts) > 1:
        return LostTime(between, None, None, queue)
    again_s, again, by_itself = 0.0, 0, False
    for before, after in zip(state.attempts, state.attempts[1:], strict=False):
        logged, then = steps.get(before["attempt"]), steps.get(after["attempt"])
        if not logged:
            continue
        resumed = after.get("resume_step")
        if resumed is None and then and min(then)[0] > min(logged)[0]:
            resumed, by_itself = min(then)[0] - 1, True
        kept = [moment for step, moment in logged if resumed is not None and step <= resumed]
        saved_at = max(kept, default=before["started_at"])
        again += max(0, max(step for step, _ in logged) - (resumed if resumed is not None else -1))
        again_s += max(0.0, max(moment for _, moment in logged) - saved_at)
    return LostTime(between, again_s, again, queue, by_itself)
