"""How fast a training went on, from when its steps were logged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

OWN = "cordee/"
THROUGHPUTS = ("tokens_per_s", "samples_per_s", "throughput")
_FIRST = (*THROUGHPUTS, "loss")
_MOST_SPREAD = 0.15


@dataclass(frozen=True)
class Stretches:
    """What was done between two logged steps of one attempt, in the order of time: float64 arrays of one length.

    Attributes:
        begin, end: UTC epoch seconds.
        steps: how many steps were done.
        attempt: int64.
        name: of what was logged; `value`: its mean over the ranks at the end of each stretch.
    """

    begin: np.ndarray
    end: np.ndarray
    steps: np.ndarray
    attempt: np.ndarray
    name: str
    value: np.ndarray

    @property
    def step_s(self) -> np.ndarray:
        """Seconds of a step, the mean of each stretch."""
        seconds: np.ndarray = (self.end - self.begin) / self.steps
        return seconds


def stretches(events: Mapping[str, np.ndarray]) -> Stretches:
    """Return the stretches of a run from what ranks logged by name; a step is done when the last rank logged it.

    Of several names the one that says how fast it goes, else the loss, else the one that was logged most.
    """
    own = {name: _timed(rows) for name, rows in events.items() if not name.startswith(OWN)}
    names = [name for name in _FIRST if len(own.get(name, ())) > 1] or sorted(own, key=lambda name: -len(own[name]))
    empty = np.empty(0)
    if not names:
        return Stretches(empty, empty, empty, empty.astype(np.int64), "", empty)
    rows = own[names[0]]
    rows = rows[np.lexsort((rows["step"], rows["attempt"]))]
    begins = np.flatnonzero(np.r_[True, (np.diff(rows["attempt"]) != 0) | (np.diff(rows["step"]) != 0)])
    if not len(rows):
        return Stretches(empty, empty, empty, empty.astype(np.int64), "", empty)
    times = np.maximum.reduceat(rows["time"], begins)
    value = np.add.reduceat(rows["value"], begins) / np.diff(np.r_[begins, len(rows)])
    attempt, step = rows["attempt"][begins].astype(np.int64), rows["step"][begins].astype(np.float64)
    one = np.flatnonzero((np.diff(attempt) == 0) & (np.diff(times) > 0))
    one = one[np.argsort(times[one], kind="stable")]
    return Stretches(times[one], times[one + 1], np.diff(step)[one], attempt[one], names[0], value[one + 1])


def _timed(rows: np.ndarray) -> np.ndarray:
    found: np.ndarray = rows[(rows["step"] >= 0) & np.isfinite(rows["time"])]
    return found


def pace(done: Stretches, start: float, stop: float, points: int) -> tuple[np.ndarray, np.ndarray]:
    """Return (times, steps per second): the beginnings of at most `points` equal bins, and what was done in each.

    A bin in which no attempt logged is NaN; one that is covered in part tells the pace of that part.
    """
    width = max((stop - start) / max(1, points), float(np.median(done.end - done.begin)) if len(done.end) else 0.0)
    if not len(done.end) or width <= 0:
        return np.empty(0), np.empty(0)
    edges = start + width * np.arange(max(2, int(np.ceil((stop - start) / width)) + 1))
    steps, known = np.zeros(len(edges) - 1), np.zeros(len(edges) - 1)
    for attempt in np.unique(done.attempt):
        of = done.attempt == attempt
        at = np.r_[done.begin[of], done.end[of][-1]]
        sums = np.r_[0.0, np.cumsum(done.steps[of])]
        steps += np.diff(np.interp(edges, at, sums))
        known += np.diff(np.interp(edges, [at[0], at[-1]], [0.0, at[-1] - at[0]]))
    with np.errstate(invalid="ignore", divide="ignore"):
        return edges[:-1], np.where(known > 0.05 * width, steps / known, np.nan)


def work_per_step(done: Stretches) -> float | None:
    """Return the tokens or samples of a step, where ranks logged their throughput and steps are alike; else None.

    It is the median of the logged throughput x the time of a step; alike means that this varies by less than 15 %.
    """
    if done.name not in THROUGHPUTS:
        return None
    work = done.value * done.step_s
    work = work[np.isfinite(work) & (work > 0)]
    if not len(work):
        return None
    middle = float(np.median(work))
    spread = 1.4826 * float(np.median(np.abs(work - middle)))
    return middle if spread < _MOST_SPREAD * middle else None
