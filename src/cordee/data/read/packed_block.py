"""One block of samples on its way from open shards: planned, read in one go, cut into fields."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Callable, Optional

from cordee.data.read._base import Samples
from cordee.data.read.counting import Counts
from cordee.data.read.many import Answer, ManyReads
from cordee.data.read.packed_files import Files
from cordee.data.read.packed_layout import Block, Layout, assembled
from cordee.data.read.table import Table

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, Any]


class BlockReading:
    """Samples that are being read.

    Args:
        samples: int64[n].
        careful: reads samples one by one, where an answer was short or storage failed; tells of which sample.
    """

    def __init__(
        self,
        layout: Layout,
        samples: "Array",
        files: Files,
        many: ManyReads,
        counts: Counts,
        careful: "Callable[[Array], list[Any]]",
    ) -> None:
        self._fields, self._numbers, self._counts, self._careful = layout.fields, samples, counts, careful
        self._many, self._shards = many, files
        self._block = block = layout.block(samples)
        self._owners: Optional[list[int]] = None
        shards, begins, ends = block.shards, block.begins, block.ends
        if block.together is not None:  # fields of a sample that lie far from each other are read apart
            owners, shards, begins, ends = layout.pieces(block)
            self._owners = owners.tolist()
        numbers = shards.tolist()
        self._sizes: Array = ends - begins
        self._opened = files.borrow(set(numbers))
        self._stretches = list(map(self._opened.__getitem__, numbers)), self._sizes.tolist(), begins.tolist()
        self._answer: Optional[Answer] = None

    def start(self) -> None:
        """Begin to read in a thread."""
        self._answer = self._many.start(*self._stretches, done=self._give_back)

    def samples(self) -> Samples:
        """Return the samples; read now where `start` was not called."""
        try:
            if self._answer is None:
                answers, began, ended = self._read()
            else:
                answers, began, ended = self._answer.wait()
        except OSError:
            answers, began, ended = [], 0.0, 0.0
        if list(map(len, answers)) != self._stretches[1]:
            return self._careful(self._numbers)
        self._counts.block(self._sizes, self._many.busy_s(began, ended))
        return self._cut(self._block, answers)

    def _read(self) -> tuple[list[bytes], float, float]:
        began = time.perf_counter()
        try:
            return self._many.read(*self._stretches), began, time.perf_counter()
        finally:
            self._give_back()

    def _give_back(self) -> None:
        self._shards.give_back(self._opened)

    def _cut(self, block: Block, answers: list[bytes]) -> Samples:
        """Return what was read as samples; a field that a sample has not is left out."""
        if self._owners is not None:
            parts: list[list[bytes]] = [[] for _ in block.shards]
            for owner, data in zip(self._owners, answers):
                parts[owner].append(data)
            return [assembled(self._fields, block, place, some) for place, some in enumerate(parts)]
        if len(self._fields) == 1 and int(block.lengths.min()) >= 0:
            return Table({self._fields[0]: answers})
        starts = block.offsets - block.begins[:, None]
        stops = starts + block.lengths
        if int(block.lengths.min()) >= 0:
            cuts = zip(self._fields, starts.T.tolist(), stops.T.tolist())
            return Table({name: [data[a:b] for data, a, b in zip(answers, begin, end)] for name, begin, end in cuts})
        return [
            {name: data[start:stop] for name, start, stop in zip(self._fields, own_starts, own_stops) if stop >= start}
            for data, own_starts, own_stops in zip(answers, starts.tolist(), stops.tolist())
        ]
