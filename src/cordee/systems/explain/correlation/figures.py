"""Correlations of many series with one, with lags, and what is left of them once chance is taken off. Pure."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

# A series of fewer windows says nothing; of one with more gaps than this share, or hardly any change, neither.
LEAST_WINDOWS = 24
_MOST_GAPS = 0.2
_CHANCE = 0.001
_CLIP = 0.02
_MOST_CORRELATION = 0.999999


class MovedMetric(NamedTuple):
    """A metric that moved with the time of a step.

    Attributes:
        strength: the median correlation of the devices that moved with it, from -1 to 1; above 0: higher where steps took longer.
        lag_s: the median of how much earlier (above 0) or later than the steps it moved.
        devices: how many moved with it; `of`: that were looked at.
        strongest: (device, correlation) of the first few.
    """

    group: str
    metric: str
    unit: str
    strength: float
    lag_s: float
    devices: int
    of: int
    strongest: tuple[tuple[Any, float], ...]


class LaggedCorrelations(NamedTuple):
    """By device: the correlation at the lag where it is strongest, that lag in windows, and how sure it is (z)."""

    value: np.ndarray
    lag: np.ndarray
    z: np.ndarray


def lagged(target: np.ndarray, values: np.ndarray, most_lag: int) -> LaggedCorrelations:
    """Return how the columns of `values` go with `target`, each at its best lag.

    The highest and lowest 2 % are clipped, so that a single peak says nothing. Neighbouring windows are alike: they count for
    fewer, by the first autocorrelation of both series (Bartlett).

    Args:
        target: [window], NaN where it is not known.
        values: [window, device], NaN where it is not known.
        most_lag: in windows, either way. A lag above 0: the column moved first.
    """
    devices = values.shape[1]
    best = LaggedCorrelations(np.zeros(devices), np.zeros(devices, int), np.zeros(devices))
    wanted = np.isfinite(target)
    y = np.where(wanted, clipped(target[:, None])[:, 0], np.nan)
    x = clipped(values)
    gaps = np.isnan(x).mean(axis=0)
    alike = np.clip(_auto(y[:, None]) * _auto(x), -0.99, 0.99)
    for lag in sorted(range(-most_lag, most_lag + 1), key=abs):
        early, late = (x[: len(x) - lag], y[lag:]) if lag >= 0 else (x[-lag:], y[:lag])
        value, count = _correlation(early, late[:, None])
        sure = np.arctanh(np.clip(value, -_MOST_CORRELATION, _MOST_CORRELATION))
        counted = np.maximum(0.0, count * (1 - alike) / (1 + alike) - 3)
        z = np.where((count >= LEAST_WINDOWS) & (gaps <= _MOST_GAPS), sure * np.sqrt(counted), 0.0)
        better = np.abs(z) > np.abs(best.z) + 1e-9
        best.value[better], best.lag[better], best.z[better] = value[better], lag, z[better]
    return best


def least_z(comparisons: int) -> float:
    """Return how sure a correlation must be, where one of a thousand searches of so many series may find one by chance."""
    return NormalDist().inv_cdf(1 - _CHANCE / (2 * max(1, comparisons)))


def moved(
    found: LaggedCorrelations, devices: list[Any], least: float, window_s: float, about: tuple[str, str, str]
) -> MovedMetric | None:
    """Return what a metric did, None where it did nothing beyond chance.

    Args:
        about: group, metric and unit.
    """
    sure = np.abs(found.z) >= least
    if not sure.any():
        return None
    sign = 1.0 if np.sum(np.sign(found.z[sure])) >= 0 else -1.0
    same = sure & (np.sign(found.z) == sign)
    order = [at for at in np.argsort(-np.abs(found.value)) if same[at]]
    strongest = tuple((devices[at], round(float(found.value[at]), 3)) for at in order[:5])
    strength, lag = float(np.median(found.value[same])), float(np.median(found.lag[same]))
    return MovedMetric(*about, round(strength, 3), lag * window_s, int(same.sum()), len(devices), strongest)


def step_seconds(rows: np.ndarray, start: float, window_s: float, windows: int) -> np.ndarray:
    """Return the time of a step in each window, the median over ranks; NaN where none ended.

    Args:
        rows: what ranks logged: attempt, rank, step, time; see `Run.events`.
        start: UTC seconds of the first window.
    """
    per_rank = []
    rows = rows[rows["step"] >= 0]
    rows = rows[np.lexsort((rows["rank"], rows["attempt"]))]
    changes = (np.diff(rows["rank"]) != 0) | (np.diff(rows["attempt"]) != 0)
    for own in np.split(rows, np.flatnonzero(changes) + 1) if len(rows) else []:
        steps, first = np.unique(own["step"], return_index=True)
        times = own["time"][first]
        made, took = np.diff(steps), np.diff(times)
        at = ((times[1:] - start) // window_s).astype(int)
        good = (took > 0) & (at >= 0) & (at < windows)
        total = np.bincount(at[good], took[good], windows)
        count = np.bincount(at[good], made[good], windows)
        with np.errstate(invalid="ignore", divide="ignore"):
            per_rank.append(np.where(count > 0, total / count, np.nan))
    if not per_rank:
        return np.full(windows, np.nan)
    table = np.array(per_rank)
    seen = np.isfinite(table).any(axis=0)
    found = np.full(windows, np.nan)
    found[seen] = np.nanmedian(table[:, seen], axis=0)
    return found


def clipped(values: np.ndarray) -> np.ndarray:
    """Return columns with their highest and lowest values cut; those without a value or a change are NaN."""
    values = np.where(np.isfinite(values), values, np.nan)
    found = np.full(values.shape, np.nan)
    useful = (~np.isnan(values)).sum(axis=0) >= LEAST_WINDOWS
    if useful.any():
        some = values[:, useful].astype(float)
        low, high = np.nanquantile(some, (_CLIP, 1 - _CLIP), axis=0)
        clipped = np.clip(some, low, high)
        clipped[:, high - low <= 1e-9 * np.maximum(np.abs(high), 1e-9)] = np.nan
        found[:, useful] = clipped
    return found


def _auto(values: np.ndarray) -> np.ndarray:
    """Return how alike neighbouring windows are, by column."""
    value, _ = _correlation(values[1:], values[:-1])
    return value


def _correlation(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the correlation of columns, 0 where there is none, and how many windows both are known in."""
    both = np.isfinite(x) & np.isfinite(y)
    count = both.sum(axis=0)
    at_least_one = np.maximum(count, 1)
    x, y = (np.where(both, values, 0.0) for values in (x, y))
    x = np.where(both, x - x.sum(axis=0) / at_least_one, 0.0)
    y = np.where(both, y - y.sum(axis=0) / at_least_one, 0.0)
    scale = np.sqrt((x * x).sum(axis=0) * (y * y).sum(axis=0))
    with np.errstate(invalid="ignore", divide="ignore"):
        value = np.where(scale > 0, (x * y).sum(axis=0) / scale, 0.0)
    return value, count


def windows_of(seconds: float) -> float:
    """Return the length of a window for a run of this length: 5 s, or 60 s above some hours."""
    return 5.0 if seconds <= 5.0 * 2880 else 60.0


def enough(target: np.ndarray) -> bool:
    """Return whether so much is known of the steps that anything can be said."""
    known = target[np.isfinite(target)]
    return len(known) >= LEAST_WINDOWS and math.isfinite(known.std()) and known.std() > 1e-6 * abs(known.mean())
