"""How fast a training went on, from when its steps were logged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cordee.core.stats import centre_and_spread

if TYPE_CHECKING:
    from cordee.runs.state import RunState
    from cordee.telemetry.store.reader import Run

OWN = "cordee/"
THROUGHPUTS = ("tokens_per_s", "samples_per_s", "throughput")
_FIRST = (*THROUGHPUTS, "loss")
_MOST_SPREAD = 0.15
_MOST_TRIED = 20


@dataclass(frozen=True)
class Stretches:
    """What was done between two logged steps of one attempt, in the order of time: float64 arrays of one length.

    Attributes:
        begin, end: UTC epoch seconds.
        steps: how many steps were done.
        attempt: int64, from 1, by the times at which attempts began.
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


def stretches(run: Run, state: RunState) -> Stretches:
    """Return the stretches of a run from what ranks logged; a step is done when the last rank logged it.

    Of several names the one that says how fast it goes, else the loss, else the one with most steps. Of steps that a restart
    repeated the newest attempt counts.
    """
    logged = [name for name in run.logged() if not name.startswith(OWN)]
    preferred = (run.series(name) for name in _FIRST if name in logged)
    series = next((one for one in preferred if len(one.steps) > 1), None)
    if series is None:
        others = [run.series(name) for name in logged if name not in _FIRST][:_MOST_TRIED]
        series = max(others, key=lambda one: len(one.steps), default=None)
    empty = np.empty(0)
    if series is None:
        return Stretches(empty, empty, empty, empty.astype(np.int64), "", empty)
    timed = np.isfinite(series.times)
    times, steps, value = series.times[timed], series.steps[timed].astype(np.float64), series.mean[timed]
    starts = np.array([entry["started_at"] for entry in state.attempts], dtype=np.float64)
    attempt = np.maximum(1, np.searchsorted(starts, times, side="right"))
    one = np.flatnonzero((np.diff(attempt) == 0) & (np.diff(times) > 0))
    one = one[np.argsort(times[one], kind="stable")]
    return Stretches(times[one], times[one + 1], np.diff(steps)[one], attempt[one], series.name, value[one + 1])


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
    middle, spread = centre_and_spread(work)
    return middle if spread < _MOST_SPREAD * middle else None
