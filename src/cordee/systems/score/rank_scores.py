"""The identity of single ranks where cores are scored: each rank against the cores that fall to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cordee.systems.score.identity import Levels, Sums, sums

if TYPE_CHECKING:
    from cordee.systems.score.trace.model import ScoreTrace


def rank_sums(trace: ScoreTrace) -> dict[int, Sums]:
    """Return the sums of each rank that was sampled; depth counts as 1, as instructions are told of nodes."""
    used = None if trace.rank is None else trace.rank.load("cpu_cores_ratio")
    if used is None or trace.rank is None:
        return {}
    shares = trace.rank.load("cpu_share_cores")
    given: dict[int, float] = trace.facts.get("rank_cores", {})
    found = {}
    for at, key in enumerate(trace.rank.keys):
        cores = np.nan if shares is None else np.nanmax(shares[:, at], initial=-np.inf)
        cores = float(cores) if np.isfinite(cores) and cores > 0 else given.get(int(key), np.nan)
        graphics = np.minimum(used[:, at : at + 1], np.float32(1))
        sm = np.minimum(used[:, at : at + 1] / cores, 1.0) if np.isfinite(cores) else graphics
        found[int(key)] = sums(Levels(graphics, sm, sm), [1.0])
    return found
