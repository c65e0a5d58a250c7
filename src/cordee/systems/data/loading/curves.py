"""Loading over time: running totals of many processes on one grid of bins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cordee.systems.data.loading.running_totals import LoadingTotals

_LEAST_BIN_S = 1.0
_LEAST_COVERED = 0.05


@dataclass(frozen=True)
class Curves:
    """Bins of one width; float64 arrays of one length, NaN where no process told of that time.

    Attributes:
        times: when each bin begins, UTC epoch seconds.
        wait_per_step_s, wait_per_step_most_s: what a rank waited in a step: the mean, and the rank that waited most.
        wait_share: of the time, mean over the ranks.
        bytes_per_s, samples_per_s: of all ranks together.
    """

    times: np.ndarray
    wait_per_step_s: np.ndarray
    wait_per_step_most_s: np.ndarray
    wait_share: np.ndarray
    bytes_per_s: np.ndarray
    samples_per_s: np.ndarray


def curves(told: Sequence[LoadingTotals], start: float, stop: float, points: int) -> Curves:
    """Return at most `points` bins of what was told from `start` to `stop`, no narrower than the telling was frequent."""
    between = [np.diff(one.times) for one in told if len(one.times) > 1]
    usual = float(np.median(np.concatenate(between))) if between else 0.0
    width = max((stop - start) / max(1, points), usual, _LEAST_BIN_S)
    count = max(1, int(np.ceil((stop - start) / width))) if stop > start else 0
    edges = start + width * np.arange(count + 1)
    wait, batches, covered = np.zeros(count), np.zeros(count), np.zeros(count)
    rates = {"bytes": np.zeros(count), "samples": np.zeros(count)}
    most = np.full(count, np.nan)
    for one in told:
        inside = np.clip(edges, one.times[0], one.times[-1])
        known = np.diff(inside)
        seen = known > _LEAST_COVERED * width
        own_wait, own_batches = (_gained(one, name, inside) for name in ("wait_seconds", "batches"))
        covered, wait, batches = covered + known, wait + own_wait, batches + own_batches
        most = np.fmax(most, _ratio(own_wait, own_batches, own_batches > 0))
        for name, rate in rates.items():
            rate[seen] += (_gained(one, name, inside) / np.where(seen, known, 1.0))[seen]
    told_of = covered > _LEAST_COVERED * width
    return Curves(
        edges[:-1],
        _ratio(wait, batches, batches > 0),
        most,
        _ratio(wait, covered, told_of),
        np.where(told_of, rates["bytes"], np.nan),
        np.where(told_of, rates["samples"], np.nan),
    )


def _gained(one: LoadingTotals, name: str, at: np.ndarray) -> np.ndarray:
    """Return by how much a running total rose in each bin."""
    gained: np.ndarray = np.diff(np.interp(at, one.times, one.totals[name]))
    return gained


def _ratio(above: np.ndarray, below: np.ndarray, where: np.ndarray) -> np.ndarray:
    ratio: np.ndarray = np.divide(above, below, out=np.full(len(above), np.nan), where=where)
    return ratio
