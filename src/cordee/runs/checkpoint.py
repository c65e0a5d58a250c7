"""A checkpoint as the run sees it, and what finds it: a supervisor knows no more of how checkpoints are kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Optional

PART = "checkpoints"
# How often a supervisor says that ranks still train.
BEAT_S = 10.0


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint.

    Attributes:
        path: absolute path of the file or folder.
        name: path below the checkpoint folder, with `/`.
        step: the number in its name, or None.
        mtime_ns: when the file or folder itself was last changed.
    """

    path: str
    name: str
    step: Optional[int]
    mtime_ns: int

    def is_beyond(self, former: Optional[Checkpoint]) -> bool:
        """Return whether training has come further: to a higher step; without numbers in names, whether this is another one.

        Args:
            former: with which it began; None: from the beginning.
        """
        if former is None or self.step is None or former.step is None:
            return self != former
        return self.step > former.step


@dataclass(frozen=True)
class Doubt:
    """A checkpoint that may be why the attempt that began with it failed: as long as it is unchanged, an older one is begun with.

    Attributes:
        why: what happened, as a sentence.
        open: no attempt that began with an older one has got on yet, so that the checkpoint may be blameless.
    """

    checkpoint: Checkpoint
    why: str
    open: bool = True

    def document(self) -> dict[str, Any]:
        """Return what the journal keeps of it."""
        return asdict(self)

    @classmethod
    def from_document(cls, told: dict[str, Any]) -> Doubt:
        return cls(Checkpoint(**told["checkpoint"]), str(told["why"]), bool(told["open"]))


class CheckpointFinder:
    """Finds the checkpoints of one run. Made by the supervisor from `node_parts` of the plan, as
    `make(policy, run, control, orphan_s, kill_s)`, and asked in a thread that may wait for storage, one call at a time.

    Attributes:
        must_begin: whether the run was told to begin from a checkpoint.
        finds_its_own: whether the script looks for its newest one by itself.
    """

    must_begin = False
    finds_its_own = False

    def newest(self, problems: Optional[list[str]] = None) -> Optional[Checkpoint]:
        """Return this run's newest complete checkpoint, None when there is none; all its files are looked at, once.

        Args:
            problems: receives a sentence for each that could not be used.
        """
        raise NotImplementedError("a finder of checkpoints finds the newest one")

    def glance(self) -> Optional[Checkpoint]:
        """Return this run's newest checkpoint whose files are all there: for looks that are repeated."""
        return self.newest()

    def pass_over(self, doubted: Sequence[Checkpoint]) -> None:
        """From now on take none of these for the newest, as long as they are unchanged; without older ones to take it does nothing."""

    @property
    def operations(self) -> int:
        """Metadata operations of the last look."""
        return 0

    def forget(self) -> None:
        """Look anew at what was seen before."""

    def beginning(self, problems: list[str]) -> Optional[tuple[Checkpoint, Optional[str]]]:
        """Return the newest usable one of the checkpoints that the run was told to begin from, and the run that made it."""
        return None

    def foreign(self) -> list[tuple[str, Optional[str]]]:
        """Return (path, run) of the complete checkpoints that are neither this run's nor what it was told to begin from."""
        return []

    def disputed(self) -> list[str]:
        """Return the names of the checkpoints that came while this run trained and another did, too."""
        return []

    def begin_training(self) -> str:
        """Say that this run's ranks run from now on; returns what stood against it, empty when it is said."""
        return ""

    def end_training(self) -> None:
        """Say that none of this run's ranks runs any more."""

    def beat(self) -> None:
        """Say that the ranks still run; called every BEAT_S seconds."""
