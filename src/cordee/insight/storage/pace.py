"""How fast a training went on, from when its steps were logged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from cordee.runs.reader import Run

OWN = "cordee/"
_FIRST = ("tokens_per_s", "samples_per_s", "throughput", "loss")


@dataclass(frozen=True)
class Stretches:
    """What was done between two logged steps of one attempt, in the order of time: float64 arrays of one length.

    Attributes:
        begin, end: UTC epoch seconds.
        steps: how many steps were done.
        attempt: int64.
    """

    begin: np.ndarray
    end: np.ndarray
    steps: np.ndarray
    attempt: np.ndarray

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
        return Stretches(empty, empty, empty, empty.astype(np.int64))
    rows = own[names[0]]
    rows = rows[np.lexsort((rows["step"], rows["attempt"]))]
    begins = np.flatnonzero(np.r_[True, (np.diff(rows["attempt"]) != 0) | (np.diff(rows["step"]) != 0)])
    times = np.maximum.reduceat(rows["time"], begins) if len(rows) else empty
    attempt, step = rows["attempt"][begins].astype(np.int64), rows["step"][begins].astype(np.float64)
    one = np.flatnonzero((np.diff(attempt) == 0) & (np.diff(times) > 0))
    one = one[np.argsort(times[one], kind="stable")]
    return Stretches(times[one], times[one + 1], np.diff(step)[one], attempt[one])


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


def throughput(run: Run, events: Mapping[str, np.ndarray]) -> tuple[str, np.ndarray, np.ndarray] | None:
    """Return (name, times, mean over ranks) of the throughput that ranks logged themselves, None when they did not."""
    name = next((name for name in _FIRST[:3] if name in events), None)
    if name is None:
        return None
    series = run.series(name)
    order = np.argsort(series.times, kind="stable")
    order = order[np.isfinite(series.times[order])]
    return name, series.times[order], series.mean[order]
