"""What readers told of their loading: running totals of each process, as series over time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from cordee.telemetry.store.reader import Run

PREFIX = "cordee/data/"
TOTALS = (
    "wait_seconds",
    "busy_seconds",
    "batches",
    "samples",
    "bytes",
    "requests",
    "opens",
    "skipped",
    "dropped",
    "advised",
    "advised_bytes",
)
STATES = ("epoch", "position", "limit_bytes_per_second")
_REQUESTS = "requests_le/"


@dataclass
class LoadingTotals:
    """What one process told of one data set.

    Attributes:
        times: float64 [n], UTC epoch seconds, rising.
        totals: float64 [n] by name, since the process began; a name that was not told before has 0 there.
        states: float64 [n] by name, NaN before they were told.
        requests: how many requests were larger than half of so many bytes and not larger than them, at the end.
    """

    attempt: int
    rank: int
    times: np.ndarray
    totals: dict[str, np.ndarray] = field(default_factory=dict)
    states: dict[str, np.ndarray] = field(default_factory=dict)
    requests: dict[int, float] = field(default_factory=dict)

    @property
    def span_s(self) -> float:
        """Seconds between the first and the last time that it told."""
        return float(self.times[-1] - self.times[0])

    def total(self, name: str) -> float:
        """Return what was reached in all."""
        return float(self.totals[name][-1])

    def during(self, name: str) -> float:
        """Return what came to it within `span_s`."""
        return float(self.totals[name][-1] - self.totals[name][0])

    def last(self, name: str) -> float | None:
        """Return the last value of a state, None where it was never told."""
        values = self.states[name]
        known = values[np.isfinite(values)]
        return float(known[-1]) if len(known) else None


def read_told(run: Run) -> dict[str, list[LoadingTotals]]:
    """Return what was told, by the data set's name, in the order of attempt and rank."""
    found: dict[str, dict[str, np.ndarray]] = {}
    names = [name for name in run.logged() if name.startswith(PREFIX)]
    for name, rows in run.events(names).items() if names else ():
        data_set, what = _parts(name[len(PREFIX) :])
        if data_set and what:
            found.setdefault(data_set, {})[what] = rows
    return {name: _processes(events) for name, events in sorted(found.items())}


def _parts(name: str) -> tuple[str, str]:
    """Return (data set, what is told of it); the data set's name may hold slashes."""
    head, _, last = name.rpartition("/")
    if head.endswith(f"/{_REQUESTS[:-1]}"):
        return head[: -len(_REQUESTS)], f"{_REQUESTS}{last}"
    return head, last


def _processes(events: Mapping[str, np.ndarray]) -> list[LoadingTotals]:
    """Return one entry for each process, on the times at which any of its numbers was told."""
    of_process: dict[tuple[int, int], dict[str, np.ndarray]] = {}
    for what, rows in events.items():
        changes = np.flatnonzero((np.diff(rows["attempt"]) != 0) | (np.diff(rows["rank"]) != 0)) + 1
        for part in np.split(rows, changes) if len(rows) else ():  # rows are ordered by attempt and rank
            of_process.setdefault((int(part["attempt"][0]), int(part["rank"][0])), {})[what] = part
    return [_told(attempt, rank, of_process[attempt, rank]) for attempt, rank in sorted(of_process)]


def _told(attempt: int, rank: int, events: Mapping[str, np.ndarray]) -> LoadingTotals:
    times = np.unique(np.concatenate([rows["time"] for rows in events.values()]))
    told = LoadingTotals(attempt, rank, times)
    for name in TOTALS:
        told.totals[name] = np.maximum.accumulate(_at(times, events.get(name), 0.0))
    for name in STATES:
        told.states[name] = _at(times, events.get(name), np.nan)
    for name, rows in events.items():
        if name.startswith(_REQUESTS) and name[len(_REQUESTS) :].isdigit():
            told.requests[int(name[len(_REQUESTS) :])] = float(rows["value"].max())
    return told


def _at(times: np.ndarray, rows: np.ndarray | None, before: float) -> np.ndarray:
    """Return the newest value at each time, `before` until the first."""
    if rows is None or not len(rows):
        return np.full(len(times), before)
    order = np.argsort(rows["time"], kind="stable")
    known, values = rows["time"][order], rows["value"][order]
    place = np.searchsorted(known, times, side="right")
    return np.where(place > 0, values[np.maximum(0, place - 1)], before)
