"""How many metric names one rank may use: each is kept by agents, readers and pages for as long as they live."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from cordee.telemetry.node.blocklog import MOST_RANK_NAMES


class NameCap:
    """Leaves out values whose names come after the first `MOST_RANK_NAMES` of a rank, and counts them.

    Attributes:
        left_out: values, by whose they were.
    """

    def __init__(self) -> None:
        self.left_out: dict[Any, int] = {}
        self._names: dict[Any, set[str]] = {}

    def keep(self, owner: Hashable, events: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """Return events `(offset, time, step, {name: value})` of one rank with the values that may stay."""
        names = self._names.setdefault(owner, set())
        kept = []
        for event in events:
            values = event[3]
            if not names.issuperset(values):
                values = self._allowed(owner, names, values)
            if values:
                kept.append((*event[:3], values))
        return kept

    def _allowed(self, owner: Hashable, names: set[str], values: dict[str, float]) -> dict[str, float]:
        allowed = {}
        for name, value in values.items():
            if name in names or len(names) < MOST_RANK_NAMES:
                names.add(name)
                allowed[name] = value
        if len(allowed) < len(values):
            self.left_out[owner] = self.left_out.get(owner, 0) + len(values) - len(allowed)
        return allowed
