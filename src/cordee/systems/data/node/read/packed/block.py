"""One block of samples on its way from open shards: planned, read in one go or in parts, cut into fields."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Callable, Optional

from cordee.systems.data.node.read._base import Samples
from cordee.systems.data.node.read.batches.columns import SampleTable
from cordee.systems.data.node.read.counters import ReadCounts
from cordee.systems.data.node.read.packed.batch_pread import ManyReads, PendingRead, read_here
from cordee.systems.data.node.read.packed.files import Files
from cordee.systems.data.node.read.packed.layout import PackedLayout, SampleBlock, assembled

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, Any]


class ReadPlan:
    """What is read for samples: int64[n], and how it is cut into fields.

    Args:
        owners: which sample of the block each stretch belongs to, in ascending order; None: each has one.
        shards, begins, sizes: of the stretches.
    """

    def __init__(
        self,
        fields: tuple[str, ...],
        samples: "Array",
        block: SampleBlock,
        owners: "Optional[Array]",
        shards: "Array",
        begins: "Array",
        sizes: "Array",
    ) -> None:
        self._fields, self.samples, self._block, self._owners = fields, samples, block, owners
        self.shards, self.begins, self.sizes = shards, begins, sizes

    @classmethod
    def made(cls, layout: PackedLayout, samples: "Array") -> "ReadPlan":
        """Plan to read samples."""
        block = layout.block(samples)
        if block.together is None:
            return cls(layout.fields, samples, block, None, block.shards, block.begins, block.ends - block.begins)
        owners, shards, begins, ends = layout.pieces(
            block
        )  # fields of a sample that lie far from each other are read apart
        return cls(layout.fields, samples, block, owners, shards, begins, ends - begins)

    def part(self, begin: int, end: int) -> "ReadPlan":
        """Return the plan of some of the samples: from place `begin` to `end`."""
        whole, together = self._block, self._block.together
        block = SampleBlock(
            whole.shards[begin:end],
            whole.begins[begin:end],
            whole.ends[begin:end],
            whole.offsets[begin:end],
            whole.lengths[begin:end],
            None if together is None else together[begin:end],
        )
        owners, first, last = self._owners, begin, end
        if owners is not None:
            first, last = owners.searchsorted([begin, end]).tolist()
            owners = owners[first:last] - begin
        stretches = (column[first:last] for column in (self.shards, self.begins, self.sizes))
        return ReadPlan(self._fields, self.samples[begin:end], block, owners, *stretches)

    def cut(self, answers: list[bytes]) -> Samples:
        """Return what was read as samples; a field that a sample has not is left out."""
        block = self._block
        if self._owners is not None:
            parts: list[list[bytes]] = [[] for _ in block.shards]
            for owner, data in zip(self._owners.tolist(), answers):
                parts[owner].append(data)
            return [assembled(self._fields, block, place, some) for place, some in enumerate(parts)]
        if len(self._fields) == 1 and int(block.lengths.min()) >= 0:
            return SampleTable({self._fields[0]: answers})
        starts = block.offsets - block.begins[:, None]
        stops = starts + block.lengths
        if int(block.lengths.min()) >= 0:
            cuts = zip(self._fields, starts.T.tolist(), stops.T.tolist())
            return SampleTable(
                {name: [data[a:b] for data, a, b in zip(answers, begin, end)] for name, begin, end in cuts}
            )
        return [
            {name: data[start:stop] for name, start, stop in zip(self._fields, own_starts, own_stops) if stop >= start}
            for data, own_starts, own_stops in zip(answers, starts.tolist(), stops.tolist())
        ]


class BlockReading:
    """Samples that are being read, by one of the three: `start`, then `samples`; `samples`; `samples_here`.

    Args:
        careful: reads samples one by one, where an answer was short or storage failed; tells of which sample.
    """

    def __init__(
        self, plan: ReadPlan, files: Files, many: ManyReads, counts: ReadCounts, careful: "Callable[[Array], list[Any]]"
    ) -> None:
        self._plan, self._many, self._shards, self._counts, self._careful = plan, many, files, counts, careful
        numbers = plan.shards.tolist()
        self._sizes: list[int] = plan.sizes.tolist()
        self._opened = files.borrow(set(numbers))
        self._stretches = list(map(self._opened.__getitem__, numbers)), self._sizes, plan.begins.tolist()
        self._answer: Optional[PendingRead] = None

    def start(self) -> None:
        """Begin to read in a thread."""
        self._answer = self._many.start(*self._stretches, done=self._give_back)

    def samples(self) -> Samples:
        """Return the samples; read now where `start` was not called."""
        if self._answer is None:
            return self._timed(self._many.read)
        try:
            return self._found(*self._answer.wait())
        except OSError:
            return self._careful(self._plan.samples)

    def samples_here(self) -> Samples:
        """Return the samples, read by this thread alone, whatever other threads read."""
        return self._timed(read_here)

    def _timed(self, read: Callable[..., list[bytes]]) -> Samples:
        began = time.perf_counter()
        try:
            answers = read(*self._stretches)
        except OSError:
            return self._careful(self._plan.samples)
        finally:
            self._give_back()
        return self._found(answers, began, time.perf_counter())

    def _found(self, answers: list[bytes], began: float, ended: float) -> Samples:
        if list(map(len, answers)) != self._sizes:
            return self._careful(self._plan.samples)
        self._many.count(self._counts, self._plan.sizes, began, ended)
        return self._plan.cut(answers)

    def _give_back(self) -> None:
        self._shards.give_back(self._opened)
