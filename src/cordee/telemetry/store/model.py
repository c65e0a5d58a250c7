"""What readers of telemetry give; standard library only, so that live views start at once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np


class LoggedEvent(NamedTuple):
    """What one rank logged at one moment; (attempt, rank, offset) names it for good, however often it was sent."""

    attempt: int
    rank: int
    offset: int
    time: float
    step: int | None
    values: dict[str, float]


@dataclass
class Grid:
    """Samples of one group: `values` float32 [metric, time, device], NaN = missing.

    Attributes:
        times: float64 [time], UTC epoch seconds, one every `cadence` seconds (the beginning of a bin for rollups).
        devices: node names, or rank numbers.
        metrics: names; `units` and `sources` by name.
    """

    group: str
    cadence: float
    times: np.ndarray
    devices: list[Any]
    metrics: list[str]
    values: np.ndarray
    units: dict[str, str] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)


@dataclass
class Series:
    """A user metric over the ranks, in the order of steps: arrays of one length.

    Attributes:
        steps: int64; where a restart repeated a step its newest attempt counts.
        times: float64, when the last rank logged it.
        mean, low, high: float64 over the ranks.
        ranks: int64, how many ranks logged it.
    """

    name: str
    steps: np.ndarray
    times: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    ranks: np.ndarray
