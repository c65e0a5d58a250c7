"""What ranks logged, thinned to what a chart can show."""

from __future__ import annotations

from typing import Any

import numpy as np

from cordee.core.errors import UsageError
from cordee.faces.web.answers.errors import NotFound
from cordee.telemetry.store.logged import LoggedFacts, logged_facts
from cordee.telemetry.store.model import Series
from cordee.telemetry.store.reader import Run

OWN = "cordee/"
MOST_NAMES = 2000
MOST_ROWS = 2_000_000
_MOST_DETAILED = 300


def list_logged(run: Run) -> dict[str, Any]:
    """Return `{metrics, capped}`: each name with its ranks, steps and newest value; Cordée's own names are left out.

    What takes long in runs with very many names or values is null there.
    """
    names = [name for name in run.logged() if not name.startswith(OWN)]
    series = {name: one for name in names[:_MOST_DETAILED] if (one := series_of(run, name)) is not None}
    rows = sum(int(one.ranks.sum()) for one in series.values())
    events = run.events() if rows <= MOST_ROWS and len(series) == len(names) else {}
    known = logged_facts(run)
    found = []
    for name in names[:MOST_NAMES]:
        about, one = known.get(name, LoggedFacts()), series.get(name)
        ranks = np.unique(events[name]["rank"]).tolist() if name in events else None
        found.append(
            {
                "name": name,
                "ranks": len(ranks) if ranks is not None else int(one.ranks.max()) if one is not None else None,
                "steps": len(one.steps) if one is not None else None,
                "last": float(one.mean[-1]) if one is not None else None,
                "at": float(one.times[-1]) if one is not None else None,
                "source": about.source,
                "also": list(about.also),
                "unit": about.unit,
                "rank0_only": ranks == [0] if ranks is not None else None,
            }
        )
    return {"metrics": found, "capped": max(0, len(names) - MOST_NAMES)}


def series_of(run: Run, name: str) -> Series | None:
    """Return a logged metric; None where there is nothing of it, or its file is not there."""
    try:
        return run.series(name)
    except UsageError:
        return None


def curve(run: Run, name: str, *, by: str, rank: int | None, points: int) -> dict[str, np.ndarray]:
    """Return x, mean, low, high and ranks of a logged metric, with at most `points` points.

    Args:
        by: `step`, or `time` for UTC epoch seconds.
        rank: of this one alone; None: over all ranks.

    Raises:
        UsageError: nothing was logged under this name.
        NotFound: this rank did not log it.
    """
    series = run.series(name) if rank is None else _of_rank(run, name, rank)
    x = series.times if by == "time" else series.steps.astype(np.float64)
    order = np.argsort(x, kind="stable") if by == "time" else slice(None)
    columns = {
        "x": x[order],
        "mean": series.mean[order],
        "low": series.low[order],
        "high": series.high[order],
        "ranks": series.ranks[order].astype(np.float64),
    }
    return _thinned(columns, points)


def _of_rank(run: Run, name: str, rank: int) -> Series:
    rows = run.events(name).get(name)
    if rows is None:
        return run.series(name)  # raises, with the names that there are
    rows = rows[rows["rank"] == rank]
    if not len(rows):
        raise NotFound(
            "this rank did not log this metric", given=rank, next="leave out `rank` to see it over all ranks"
        )
    if (rows["step"] >= 0).any():
        rows = rows[rows["step"] >= 0]
        keys = rows["step"]
    else:
        keys = np.arange(len(rows))
    last = (
        len(keys) - 1 - np.unique(keys[::-1], return_index=True)[1]
    )  # of a step logged twice the newest attempt counts
    value = rows["value"][last]
    return Series(name, keys[last], rows["time"][last], value, value, value, np.ones(len(last), dtype=np.int64))


def _thinned(columns: dict[str, np.ndarray], points: int) -> dict[str, np.ndarray]:
    """Return at most `points` neighbouring groups: the mean of means, the least and the greatest; NaN is passed over."""
    length = len(columns["x"])
    if length <= points:
        return columns
    begins = np.unique(np.linspace(0, length, points, endpoint=False).astype(np.int64))
    counts = np.diff(np.r_[begins, length])
    known = np.isfinite(columns["mean"])
    total = np.add.reduceat(np.where(known, columns["mean"], 0.0), begins)
    measured = np.add.reduceat(known.astype(np.int64), begins)
    return {
        "x": np.add.reduceat(columns["x"], begins) / counts,
        "mean": np.divide(total, measured, out=np.full(len(begins), np.nan), where=measured > 0),
        "low": np.fmin.reduceat(columns["low"], begins),
        "high": np.fmax.reduceat(columns["high"], begins),
        "ranks": np.fmax.reduceat(columns["ranks"], begins),
    }
