"""The seam of what is measured of each rank beside its process tree."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Mapping, Optional

from cordee.telemetry.node.samplers.tree import TreeLook


class RankPart(ABC):
    """Some metrics of ranks; called by `RankSampler` in its samples, and like it neither raises nor waits.

    Attributes:
        missing: why the metrics that were NaN in the last sample were so, by name; those too that are never measured.
    """

    def __init__(self) -> None:
        self.missing: dict[str, str] = {}

    @abstractmethod
    def metrics(self) -> list[dict[str, str]]:
        """Return name, unit and source of each metric; none where the node does not allow it (`missing` says why)."""

    @abstractmethod
    def sample(
        self, roots: Mapping[int, int], looks: Mapping[int, Optional[TreeLook]], elapsed_s: float
    ) -> dict[int, list[float]]:
        """Return the metrics of each rank that has a look.

        Args:
            roots: main pid of each rank.
            looks: at their trees; None: the rank has ended.
            elapsed_s: since the sample before; 0: there was none.
        """

    def facts(self, rank: int) -> dict[str, Any]:
        """Return what is known of a rank of the last sample."""
        return {}

    def close(self) -> None:  # noqa: B027 - most hold nothing
        """Let go of files."""
