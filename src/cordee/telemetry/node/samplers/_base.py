"""The seam of samplers."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from typing import Any, Optional, Union

NAN = float("nan")
FIRST = "a rate needs two samples"


class Sampler(ABC):
    """One source of samples, called at its cadence from one thread: by the agent, or by the process that samples GPUs.

    What a source can measure are its `metrics`, under the names of `cordee.telemetry.node.catalogue`; it lists no other.

    `sample` must neither raise nor wait: what cannot be read is NaN with its reason in `missing`, never zero. Rates are
    over the monotonic time that really passed since the previous call, so they are NaN at the first.

    Attributes:
        missing: why the metrics that were NaN in the last sample were so, by name.
    """

    def __init__(self) -> None:
        self.missing: dict[str, str] = {}

    @abstractmethod
    def probe(self) -> Optional[str]:
        """Return why this source is not available on this node, or None when it is."""

    @abstractmethod
    def metrics(self) -> list[dict[str, str]]:
        """Return name, unit and source of each metric, in the order of the samples."""

    @abstractmethod
    def devices(self) -> list[Union[str, int]]:
        """Return what the last sample was about, in its order: node names or global ranks."""

    def facts(self) -> dict[str, dict[str, Any]]:
        """Return what is known of the devices of the last sample, by name; asked after the first sample and when devices change."""
        return {}

    def close(self) -> None:  # noqa: B027 - most hold nothing
        """Let go of files and libraries."""

    @abstractmethod
    def sample(self) -> list[float]:
        """Return devices x metrics values, the metrics of one device side by side."""


def metric(name: str, unit: str, source: str) -> dict[str, str]:
    """Return one entry of `Sampler.metrics`."""
    return {"name": name, "unit": unit, "source": source}


def rate(increase: Optional[float], elapsed_s: float) -> float:
    """Return a rate; NaN when the increase is not known or negative (a counter was reset), or no time passed."""
    if increase is None or increase < 0 or elapsed_s <= 0:
        return NAN
    return increase / elapsed_s


class CounterGrowth:
    """Counters that only grow, from one sample to the next, with the time between them."""

    def __init__(self) -> None:
        self._before: dict[str, float] = {}
        self._at: Optional[float] = None
        self.elapsed_s = 0.0

    def tick(self) -> None:
        """A sample begins: take the time."""
        now = time.monotonic()
        self.elapsed_s = 0.0 if self._at is None else now - self._at
        self._at = now

    def of(self, name: str, value: Optional[float], wraps_at: Optional[float] = None) -> Optional[float]:
        """Return by how much a counter grew since the sample before; None: not known, or it was reset.

        Args:
            value: of the counter now; None: it could not be read.
            wraps_at: the greatest value, where the counter begins at 0 again after it.
        """
        before = self._before.pop(name, None)
        if value is None:
            return None
        self._before[name] = value
        if before is None:
            return None
        if value < before:
            return None if wraps_at is None else value - before + wraps_at
        return value - before
