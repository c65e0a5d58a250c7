"""Which trials are ended early: successive halving as each trial comes to a rung, waiting for nobody. Pure.

After Li et al., "A System for Massively Parallel Hyperparameter Tuning" (2020), in the form that ends trials instead of pausing them.
"""

from __future__ import annotations

import math
from typing import NamedTuple, Optional


class Rungs(NamedTuple):
    """The steps at which trials are compared: `first`, and `factor` times as many at each one after it."""

    first: int
    factor: int

    def step_of(self, rung: int) -> int:
        """Return the step of a rung, from 0."""
        return self.first * int(self.factor**rung)


class Halving:
    """What trials had reached at each rung.

    Args:
        rungs: where they are compared.
        largest: whether large values are good.
    """

    def __init__(self, rungs: Rungs, largest: bool) -> None:
        self._factor, self._sign = rungs.factor, -1.0 if largest else 1.0
        self._rungs: dict[int, dict[int, float]] = {}

    def goes_on(self, task: int, rung: int, value: Optional[float]) -> bool:
        """Return whether a trial that has come to a rung with a value (None: no finite one) is among its best so far."""
        reached = self._rungs.setdefault(rung, {})
        if value is None or not math.isfinite(value):
            reached[task] = math.inf
            return False
        own = reached[task] = self._sign * value
        better = sum(other < own for other in reached.values())
        return better < max(1, len(reached) // self._factor)
