"""A rank's batches of one loop, read in blocks: the part of the work that is the same in line, in threads and in workers."""

from __future__ import annotations

import os
import threading
import warnings
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, Iterator, Optional, Protocol, Sequence, Union

from cordee.core.errors import CordeeError, CorruptDataError, DataError
from cordee.systems.data.node.read._base import Sample, Samples, SampleSource, Unread
from cordee.systems.data.node.read.batches.collate import Collate
from cordee.systems.data.node.read.batches.columns import SampleTable
from cordee.systems.data.node.read.batches.memory import keep_freed_memory
from cordee.systems.data.node.read.order.mixture import Mix

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, Any]

# So many samples are announced to the source at first, one such group before they are read, and then twice as many each
# time until it can use no more: the more it knows, the better it puts them into the order of the files.
_ANNOUNCED, _MOST_ANNOUNCED = 4096, 1 << 18
# So much is read at once: enough that the cost of a block does not show, little enough that the first is there soon.
_BLOCK_SAMPLES, _BLOCK_BYTES = 512, 8 << 20
_LOOKED_AT = 4
# Blocks that are read at once are together no larger than so many of `most_bytes`.
_AT_ONCE_SHARE = 4
# A thread that decodes gets so many samples at least; where it reads them itself, so many bytes at most: they stay in the
# caches of its processor until they are decoded.
_SMALLEST_PART, _PART_BYTES = 8, 4 << 20
# A batch weighs at least so much: of tiny samples a few hundred batches are made ahead, not as many as fit into memory.
_LEAST_BATCH_BYTES = 256 << 10

Share = tuple[int, int]


class Ordering(Protocol):
    """What knows which sample stands at a position."""

    def samples(self, positions: "Array") -> "Array":
        """Return the samples at positions of the stream."""


class RawBatch:
    """Samples as they were read, with their numbers; skipped ones are left out of both."""

    def __init__(self, samples: Samples, numbers: list[int]) -> None:
        self._samples, self.numbers = samples, numbers

    def __len__(self) -> int:
        return len(self.numbers)

    def taken(self) -> tuple[Samples, list[int]]:
        """Return the samples, which the batch loses, and their numbers."""
        samples, self._samples = self._samples, []
        return samples, self.numbers

    def parts(self, threads: int) -> "list[RawBatch]":
        """Return the samples, which the batch loses, in a part for each thread."""
        samples, numbers = self.taken()
        return [RawBatch(samples[begin:end], numbers[begin:end]) for begin, end in _stretches(len(numbers), threads)]


class UnreadBatch(RawBatch):
    """Samples that are read where they are taken."""

    def __init__(self, unread: Unread, begin: int, numbers: list[int], mean_bytes: float) -> None:
        super().__init__([], numbers)
        self._unread, self._begin, self._mean_bytes = unread, begin, mean_bytes

    def taken(self) -> tuple[Samples, list[int]]:
        samples = self._unread.read(self._begin, self._begin + len(self.numbers))
        if isinstance(samples, SampleTable):
            return samples, self.numbers
        return _there(samples, self.numbers)

    def parts(self, threads: int) -> "list[RawBatch]":
        unread, mean_bytes = self._unread, self._mean_bytes
        most = max(1, int(_PART_BYTES / mean_bytes))
        return [
            UnreadBatch(unread, self._begin + begin, self.numbers[begin:end], mean_bytes)
            for begin, end in _stretches(len(self.numbers), threads, most)
        ]


def _stretches(size: int, threads: int, most: Optional[int] = None) -> list[tuple[int, int]]:
    """Return (begin, end) of parts for threads, no smaller than is worth a thread, nor larger than `most`."""
    parts = threads if most is None else max(threads, -(-size // most))
    step = max(_SMALLEST_PART, -(-size // parts))
    return [(begin, min(size, begin + step)) for begin in range(0, max(1, size), step)]


@dataclass
class BatchBlock:
    """Batches that were read at once.

    Attributes:
        bytes: what they count for where memory bounds how many are made ahead.
        mean_bytes: of a sample in memory, estimated from a few.
    """

    batches: list[RawBatch]
    bytes: int
    mean_bytes: float


class BatchGrowth:
    """How many bytes a batch has, once it is made, for each that was read.

    Attributes:
        times: at least 1; None: nobody knows yet.
    """

    def __init__(self, times: Optional[float] = None) -> None:
        self.times = times

    def note(self, made_bytes: float, read_bytes: float) -> None:
        """Keep what a batch shows."""
        self.times = max(1.0, made_bytes / max(1.0, read_bytes))


def blocks(
    source: SampleSource,
    order: Ordering,
    shares: Sequence[Share],
    most_bytes: int = _BLOCK_BYTES,
    growth: Optional[BatchGrowth] = None,
    *,
    unread: bool = False,
) -> Iterator[BatchBlock]:
    """Read the batches whose positions are `shares`, in their order; samples are announced to the source before.

    Args:
        most_bytes: of a block once it is made, unless one batch alone has more.
        growth: of its bytes; by default they stay as many.
        unread: leave it to whoever takes the samples to read them; for sources that can be read in parts.

    Raises:
        DataError: as the source does; or all of a batch were skipped.
    """
    keep_freed_memory()
    growth = growth or BatchGrowth(1.0)
    if unread:
        yield from _unread_blocks(source, order, shares, most_bytes, growth)
        return
    mean_bytes = 0.0
    begun: deque[_Begun] = deque()
    for group in _announced(source, order, shares):
        at = 0
        while at < len(group):
            wanted = _take(group, at, mean_bytes, most_bytes, growth)
            at += len(wanted)
            begun.append(_Begun(source, wanted))
            block_bytes = mean_bytes * sum(map(len, wanted))
            if (
                mean_bytes
                and len(begun) < source.at_once
                and (len(begun) + 1) * block_bytes < _AT_ONCE_SHARE * most_bytes
            ):
                continue
            read = [begun.popleft().block()]
            mean_bytes = max(1.0, read[0].mean_bytes)
            yield read.pop()  # nothing of it stays here while the next is read: memory that is warm is used again
    while begun:
        yield begun.popleft().block()


def _unread_blocks(
    source: SampleSource, order: Ordering, shares: Sequence[Share], most_bytes: int, growth: BatchGrowth
) -> Iterator[BatchBlock]:
    """Yield blocks whose samples are read where they are taken."""
    import numpy

    mean_bytes = 0.0
    for group in _announced(source, order, shares):
        at = 0
        while at < len(group):
            parts = _take(group, at, mean_bytes, most_bytes, growth)
            at += len(parts)
            unread = source.unread(numpy.concatenate(parts))
            mean_bytes = max(1.0, unread.bytes / max(1, sum(map(len, parts))))
            ends = numpy.cumsum([len(part) for part in parts]).tolist()
            batches: list[RawBatch] = [
                UnreadBatch(unread, end - len(part), part.tolist(), mean_bytes) for part, end in zip(parts, ends)
            ]
            yield BatchBlock(batches, max(unread.bytes, _LEAST_BATCH_BYTES * len(batches)), mean_bytes)


def _announced(source: SampleSource, order: Ordering, shares: Sequence[Share]) -> Iterator["list[Array]"]:
    """Yield groups of batches as sample numbers; each group is announced when the one before it is begun."""
    import numpy

    waiting: Optional[list[Any]] = None
    at, announced = 0, _ANNOUNCED
    most = min(_MOST_ANNOUNCED, max(_ANNOUNCED, source.ahead_samples))
    while at < len(shares):
        group: list[Any] = []
        samples = 0
        while at < len(shares) and (not group or samples < announced):
            begin, end = shares[at]
            group.append(numpy.arange(begin, end, dtype=numpy.int64))
            samples, at = samples + end - begin, at + 1
        numbers = order.samples(numpy.concatenate(group))
        source.expect(numbers)
        parts = numpy.split(numbers, numpy.cumsum([len(part) for part in group])[:-1])
        if waiting is not None:
            yield waiting
        waiting, announced = parts, min(most, 2 * announced)
    if waiting is not None:
        yield waiting


def _take(group: "list[Array]", at: int, mean_bytes: float, most_bytes: int, growth: BatchGrowth) -> "list[Array]":
    """Return the next batches to read at once: one to begin with, then as many as a block may hold."""
    if not mean_bytes or not growth.times:
        return group[at : at + 1]
    most = min(_BLOCK_SAMPLES, _BLOCK_BYTES / mean_bytes)
    taken: list[Any] = []
    samples, weight = 0, 0.0
    for part in group[at:]:
        samples += len(part)
        weight += max(_LEAST_BATCH_BYTES, mean_bytes * len(part))  # what growth is told of
        if taken and (samples > most or weight * growth.times > most_bytes):
            break
        taken.append(part)
    return taken


class _Begun:
    """A block that is being read."""

    def __init__(self, source: SampleSource, parts: "list[Array]") -> None:
        import numpy

        self._source, self._parts = source, parts
        self._wait = source.begin(numpy.concatenate(parts) if len(parts) > 1 else parts[0])

    def block(self) -> BatchBlock:
        """Wait for it."""
        source = self._source
        skipped_before = source.counts.skipped
        samples = self._wait()
        some_skipped = source.counts.skipped != skipped_before
        mean_bytes = _mean_bytes(samples)
        batches, at = [], 0
        for part in self._parts:
            batches.append(_batch(source, samples[at : at + len(part)], part.tolist(), some_skipped))
            at += len(part)
        return BatchBlock(batches, max(int(mean_bytes * len(samples)), _LEAST_BATCH_BYTES * len(batches)), mean_bytes)


def _batch(source: SampleSource, samples: Samples, numbers: list[int], some_skipped: bool) -> RawBatch:
    if some_skipped:
        there = _there(samples, numbers)
        if numbers and not there[1]:
            raise nothing_left(source, numbers)
        samples, numbers = there
    return RawBatch(samples, numbers)


def _there(samples: Samples, numbers: list[int]) -> tuple[Samples, list[int]]:
    """Return samples that were not skipped, and their numbers."""
    there = [place for place, sample in enumerate(samples) if sample is not None]
    return [samples[place] for place in there], [numbers[place] for place in there]


def nothing_left(source: SampleSource, numbers: Sequence[int]) -> DataError:
    """Return the error for a batch of which every sample was skipped."""
    return DataError(
        "every sample of this rank's batch was skipped as corrupt; without one the other ranks would wait for it for ever",
        given=", ".join(source.describe(number) for number in numbers[:4]),
        next="`cordee data verify` names what is damaged; a larger batch passes over it",
    )


def _mean_bytes(samples: Samples) -> float:
    looked_at = [sample for sample in samples[:: max(1, len(samples) // _LOOKED_AT)] if sample is not None]
    return sum(_bytes_of(sample) for sample in looked_at) / max(1, len(looked_at))


def _bytes_of(sample: Sample) -> int:
    return 64 + sum(_value_bytes(value) for value in sample.values())


def _value_bytes(value: Any) -> int:
    return len(value) if isinstance(value, (bytes, str)) else int(getattr(value, "nbytes", 8))


Change = Callable[[Any], Any]
Decode = Union[None, Change, "dict[str, Change]"]


@dataclass(frozen=True)
class Work:
    """What becomes of raw samples: decoded, transformed, put together; an object, because worker processes are sent it."""

    decode: Decode
    transform: Optional[Change]
    collate: Collate
    skip_corrupt: bool = False

    @property
    def heavy(self) -> bool:
        """Whether samples are worked on one by one, which is what threads are for."""
        return self.decode is not None or self.transform is not None

    def values(self, source: SampleSource, batch: RawBatch) -> list[Any]:
        """Return the decoded and transformed samples of a batch, which loses them; those skipped as corrupt left out.

        Raises:
            DataError: the user's functions failed; names the sample, their error is its cause. CorruptDataError: because
                its bytes are not what was packed.
        """
        found = []
        taken, numbers = batch.taken()
        samples = list(taken)[::-1]
        del taken
        for number in numbers:
            sample = samples.pop()  # memory is given back while the rest is decoded
            try:
                found.append(self._one(sample))
            except Exception as error:
                owner, own_number = _owner(source, number)
                corrupt = _corruption(owner, own_number, sample)
                if corrupt is None or not self.skip_corrupt:
                    raise corrupt or _named(error, owner.describe(own_number)) from error
                _skip(owner, own_number)
        return found

    def whole(self, source: SampleSource, batch: RawBatch) -> Any:
        """Return a batch as the loop gets it."""
        values = self.values(source, batch) if self.heavy else batch.taken()[0]
        return self.put_together(source, batch, values)

    def put_together(self, source: SampleSource, batch: RawBatch, values: Samples) -> Any:
        """Return the batch of decoded samples."""
        if not values and batch.numbers:
            raise nothing_left(source, batch.numbers)
        return self.collate(values)

    def _one(self, sample: Any) -> Any:
        decode = self.decode
        if isinstance(decode, dict):
            sample = dict(sample)
            for field, change in decode.items():
                if field in sample:
                    sample[field] = change(sample[field])
        elif decode is not None:
            sample = decode(dict(sample))
        elif self.transform is not None:
            sample = dict(sample)
        return sample if self.transform is None else self.transform(sample)


def _owner(source: SampleSource, number: int) -> tuple[SampleSource, int]:
    """Return the source that a sample is read from, and its number there."""
    return source.part(number) if isinstance(source, Mix) else (source, number)


def _corruption(source: SampleSource, number: int, sample: Sample) -> Optional[CorruptDataError]:
    """Return what is wrong if the bytes of a sample that could not be decoded are others than those that were packed."""
    verify = getattr(source, "verify", None)
    if verify is not None:
        try:
            verify(number, sample)
        except CorruptDataError as error:
            return error
    return None


_skipping = threading.Lock()
# A worker that is forked while another data set's thread holds it would wait for ever.
os.register_at_fork(before=_skipping.acquire, after_in_parent=_skipping.release, after_in_child=_skipping.release)


def _skip(source: SampleSource, number: int) -> None:
    """Count a corrupt sample as skipped and name it."""
    with _skipping:
        source.counts.skipped += 1
    warnings.warn(f"a corrupt sample is skipped: {source.describe(number)}", RuntimeWarning, stacklevel=2)


def _named(error: Exception, sample: str) -> Exception:
    """Return an error that names the sample: ours with its text, any other as a DataError that keeps the cause."""
    if isinstance(error, CordeeError):
        return error
    return DataError(
        f"a sample could not be decoded or transformed: {type(error).__name__}: {error}",
        given=sample,
        next="the traceback above shows where; the sample's bytes are what was packed, or the index would say otherwise",
    )


def in_line(read: Iterator[BatchBlock], source: SampleSource, work: Work) -> Iterator[Any]:
    """Yield batches as the loop gets them, made one by one when they are asked for."""
    for block in read:
        batches = block.batches[::-1]
        del block
        while batches:
            yield work.whole(source, batches.pop())
