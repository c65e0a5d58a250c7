"""A hang as commands, reports and pages show it: where its ranks stood."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cordee.core.draw.clean import ranges
from cordee.core.units import format_duration, utc_text
from cordee.systems.explain.hang.evidence import Hang
from cordee.systems.explain.hang.stacks import merged, own_line, tree_lines

SCHEMA = "cordee.stacks/1"


class HangView:
    """One hang.

    Args:
        hang: what was collected of it.
    """

    def __init__(self, hang: Hang) -> None:
        self.hang = hang
        self._stacks = {rank: known.frames for rank, known in sorted(hang.ranks.items()) if known.frames}
        self.tree = merged(self._stacks)
        self.without = sorted(set(hang.ranks) - set(self._stacks))

    def stacks_document(self) -> dict[str, Any]:
        """Return the stacks as JSON: the merged tree, and each rank's line in the script."""
        return {
            "schema": SCHEMA,
            "hang": self.hang.number,
            "asked": self.hang.asked,
            "attempt": self.hang.attempt,
            "at": self.hang.declared_at,
            "ranks": {str(rank): own_line(frames) for rank, frames in self._stacks.items()},
            "without": self.without,
            "tree": self.tree.document(),
        }

    def stacks_lines(self, *, every_frame: bool = False) -> Iterator[str]:
        """Yield where the ranks stood, and of whom it is not known."""
        hang = self.hang
        lasted = format_duration(max(0.0, hang.declared_at - hang.since))
        about = "where its ranks stood" if hang.asked else f"no rank had gone on for {lasted}"
        what = "question" if hang.asked else "hang"
        yield f"{what} {hang.number}, attempt {hang.attempt}: {utc_text(hang.declared_at)}, {about}"
        yield from tree_lines(self.tree, every_frame=every_frame)
        if self.without:
            yield f"no stack of {'rank' if len(self.without) == 1 else 'ranks'} {ranges(self.without[:64])}"
        if hang.ended:
            yield f"ended before: {'rank' if len(hang.ended) == 1 else 'ranks'} {ranges(sorted(hang.ended)[:64])}"
