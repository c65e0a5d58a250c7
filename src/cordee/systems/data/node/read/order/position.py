"""Where a training is in its data: one count over all epochs, cut into global batches and shared out to the ranks.

Everything here is arithmetic on positions. A position counts samples of the stream from the first of epoch 0: sample p of
epoch e stands at `e * size + p`, whatever the number of ranks, of workers, and the batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Sequence

from cordee.core.errors import UsageError
from cordee.systems.data.node.read.order.permutation import shuffled

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, Any]

SHORT, DROP = "short", "drop"


@dataclass(frozen=True)
class EpochCut:
    """The rest of an epoch as global batches of `batch` samples, of which every one of `ranks` ranks gets at least one.

    Where fewer samples than ranks would be left for the last batch, they join the one before; where there is none before,
    because the training goes on there with more ranks, they join the first batch of the next epoch. With `last="drop"` a
    last batch that is not full is left out.

    Args:
        begin: the position to begin with.
        size: samples of an epoch.
    """

    begin: int
    size: int
    batch: int
    ranks: int
    last: str = SHORT

    @property
    def epoch(self) -> int:
        """The epoch of the first batch."""
        return self.begin // self.size

    @property
    def rest(self) -> int:
        """Samples from `begin` to the epoch's end."""
        return self.size - self.begin % self.size

    @property
    def joins_next(self) -> bool:
        """Whether the rest has fewer samples than ranks and becomes one batch with the next epoch's first."""
        return self.last == SHORT and self.rest < self.ranks

    @property
    def batches(self) -> int:
        """How many there are; the same on all ranks."""
        full, left = divmod(self.rest, self.batch)
        if self.last == DROP:
            return full
        return max(1, full + (left >= self.ranks))

    @property
    def dropped(self) -> int:
        """Samples that `last="drop"` leaves out at the end."""
        return self.rest % self.batch if self.last == DROP else 0

    @property
    def end(self) -> int:
        """The position after the last batch."""
        if self.joins_next:
            return EpochCut(self.begin + self.rest, self.size, self.batch, self.ranks).bounds(0)[1]
        return self.begin + self.rest

    def bounds(self, number: int) -> tuple[int, int]:
        """Return the first position of a batch and the one after its last."""
        begin = self.begin + number * self.batch
        if self.last == SHORT and number == self.batches - 1:
            return begin, self.end
        return begin, begin + self.batch

    def share(self, number: int, rank: int) -> tuple[int, int]:
        """Return the part of a batch that is `rank`'s; parts differ by at most one sample."""
        begin, end = self.bounds(number)
        samples = end - begin
        return begin + rank * samples // self.ranks, begin + (rank + 1) * samples // self.ranks


class RankShares(Sequence[tuple[int, int]]):
    """The positions of a rank's batches, or of every `step`-th of them from `first`; computed when they are asked for."""

    def __init__(self, cut: EpochCut, rank: int, first: int = 0, step: int = 1) -> None:
        self._cut, self._rank, self._numbers = cut, rank, range(first, cut.batches, step)

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, at: Any) -> Any:
        return self._cut.share(self._numbers[at], self._rank)


def check_cut(size: int, batch: int, ranks: int, last: str, name: str) -> None:
    """Refuse what would leave a rank without samples, in which case the others would wait for it for ever.

    Raises:
        UsageError: says which number does not fit.
    """
    if batch < ranks:
        raise UsageError(
            "the batch has fewer samples than there are ranks",
            given=f"batch={batch} for {ranks} ranks",
            allowed=f"batch >= {ranks}: it is the global batch, shared out to all ranks",
            next="give the batch of all ranks together",
        )
    if size < ranks:
        raise UsageError(
            f"{name} has fewer samples than there are ranks",
            given=f"{size} samples for {ranks} ranks",
            allowed=f"at least {ranks} samples",
        )
    if last == DROP and size < batch:
        raise UsageError(
            f"{name} has no full batch, and last='drop' leaves out what is not full",
            given=f"{size} samples, batch={batch}",
            allowed="a batch of at most the samples of an epoch, or last='short'",
        )


@dataclass(frozen=True)
class SampleOrder:
    """Which sample stands at a position: every epoch a global shuffle of its own, or as they lie."""

    size: int
    seed: int = 0
    shuffle: bool = True

    def samples(self, positions: "Array") -> "Array":
        """Return the samples (int64) at positions of the stream, which may reach over epochs."""
        import numpy

        if not self.shuffle:
            return positions % self.size
        if not len(positions):
            return positions
        first, last = int(positions.min()) // self.size, int(positions.max()) // self.size
        if first == last:
            return shuffled(positions - first * self.size, self.size, self.seed, first)
        found = numpy.empty(len(positions), numpy.int64)
        for epoch in range(first, last + 1):
            inside = positions // self.size == epoch
            found[inside] = shuffled(positions[inside] - epoch * self.size, self.size, self.seed, epoch)
        return found
