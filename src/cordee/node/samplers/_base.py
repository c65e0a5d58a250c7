"""The sampler seam."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Optional, Union


class Sampler(ABC):
    """Measures a set of devices at each tick.

    Called by the agent, from its loop, one call at a time; `sample` must return within milliseconds and never raise.
    A value that could not be measured is NaN, with the reason in `missing`.
    """

    def __init__(self) -> None:
        self.missing: dict[str, str] = {}

    def probe(self) -> Optional[str]:
        """Return why this sampler cannot work here, None when it can."""
        return None

    @abstractmethod
    def metrics(self) -> list[dict[str, str]]:
        """Return `{"name", "unit", "source"}` of each metric, always the same."""

    @abstractmethod
    def devices(self) -> list[Union[str, int]]:
        """Return the devices of the last sample."""

    @abstractmethod
    def sample(self) -> list[float]:
        """Return [devices x metrics], flat, device by device."""
