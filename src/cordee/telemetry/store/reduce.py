"""Samples made fewer: neighbours along the first axis become one value; a missing value takes no part."""

from __future__ import annotations

import numpy as np


def merged(values: np.ndarray, factor: int, statistic: str) -> np.ndarray:
    """Return float32 [ceil(n / factor), ...] of samples [n, ...]: the mean, min, max or count of `factor` neighbours.

    A count adds counts where `values` are counts already, which is so for neighbours that share a row; see `counted`.
    """
    if factor == 1:
        return values
    groups = _groups(values, factor)
    found: np.ndarray
    if statistic in ("min", "max"):
        found = (np.fmin if statistic == "min" else np.fmax).reduce(groups, axis=1)
        return found
    missing = np.isnan(groups)
    known = factor - np.count_nonzero(missing, axis=1) if missing.any() else factor
    total = (
        np.where(missing, 0, groups).sum(axis=1, dtype=np.float64)
        if missing.any()
        else groups.sum(axis=1, dtype=np.float64)
    )
    with np.errstate(invalid="ignore"):
        found = np.where(known, total if statistic == "count" else total / np.maximum(known, 1), np.nan)
    return found.astype(np.float32)


def counted(values: np.ndarray) -> np.ndarray:
    """Return 1 where something was measured, NaN elsewhere: the counts of single samples."""
    ones: np.ndarray = np.where(np.isnan(values), np.float32(np.nan), np.float32(1))
    return ones


def weighted(means: np.ndarray, counts: np.ndarray, factor: int) -> np.ndarray:
    """Return float32 [ceil(n / factor), ...]: the means of all samples behind `factor` neighbouring means [n, ...]."""
    if factor == 1:
        return means
    weights = np.nan_to_num(_groups(counts, factor).astype(np.float64))
    total = (np.where(weights > 0, _groups(means, factor), 0) * weights).sum(axis=1)
    count = weights.sum(axis=1)
    found: np.ndarray = np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0).astype(np.float32)
    return found


def energy(watts: np.ndarray, seconds: np.ndarray | float) -> tuple[float, float]:
    """Return the joules behind samples or means of power, and for how many seconds of devices there were any.

    Args:
        watts: NaN = not measured.
        seconds: that each stands for.
    """
    there = np.isfinite(watts)
    joules = np.where(there, watts, np.float32(0)).astype(np.float64) * seconds
    return float(joules.sum()), float((there * seconds).sum())


def _groups(values: np.ndarray, factor: int) -> np.ndarray:
    spare = -len(values) % factor
    if spare:
        pad = np.full((spare, *values.shape[1:]), np.nan, dtype=values.dtype)
        values = np.concatenate([values, pad])
    return values.reshape(-1, factor, *values.shape[1:])
