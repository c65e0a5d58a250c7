"""What the ranks of a simulated run share: how they find each other, the bugs of their script, and their checkpoints."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from support.simulation.disk import SimulatedDisk

_SAVE_AGAIN_S = 0.2


class TrainingRank(Protocol):
    """A rank, by the supervisor and the attempt that it belongs to."""

    epoch: int
    attempt: int
    rank: int


@dataclass
class RankGroup:
    """The ranks of one attempt, as they find each other."""

    size: int
    there: set[int] = field(default_factory=set)
    broken: bool = False


class SimulatedTraining:
    """The training of one run, over all of its attempts.

    Args:
        size: how many ranks an attempt has.
        checkpoints: the folder that they save to.
        disk: which holds a rank up that saves.
        saved: called with the rank and the step of each checkpoint.

    Attributes:
        bugs: the steps in which the script of rank 0 fails; each does so once.
    """

    def __init__(self, size: int, checkpoints: Path, disk: SimulatedDisk, saved: Callable[[Any, int], None]) -> None:
        self._size, self._checkpoints, self._disk, self._saved = size, checkpoints, disk, saved
        self._groups: dict[tuple[int, int], RankGroup] = {}
        self.bugs: list[int] = []
        checkpoints.mkdir()

    def group(self, rank: TrainingRank) -> RankGroup:
        """Return the ranks of an attempt."""
        return self._groups.setdefault((rank.epoch, rank.attempt), RankGroup(self._size))

    def fails(self, rank: TrainingRank, step: int) -> bool:
        """Return whether the script fails here."""
        if rank.rank == 0 and step in self.bugs:
            self.bugs.remove(step)
            return True
        return False

    async def save(self, rank: TrainingRank, step: int) -> None:
        """Save a checkpoint; a rank waits for its disk."""
        while self._disk.troubles:
            await asyncio.sleep(_SAVE_AGAIN_S)
        path = self._checkpoints / f"step-{step:06d}"
        path.mkdir(exist_ok=True)
        (path / "weights").write_text(f"{rank.epoch} {rank.attempt}")
        self._saved(rank, step)
