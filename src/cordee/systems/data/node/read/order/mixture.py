"""Several data sets as one stream, each with its share: which set gives the next sample is a pure function of the position.

The stream is cut into slots. Every slot holds the same number of samples of each set, in an order drawn for that slot;
each set's own samples come in its own global shuffle, begun again when it is through. So shares are exact after every
slot, and nothing but the position has to be remembered.
"""

from __future__ import annotations

import hashlib
import json
import math
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Callable, Mapping, Optional, Sequence

from cordee.core.errors import UsageError
from cordee.systems.data.node.read._base import Sample, Samples, SampleSource, Unread
from cordee.systems.data.node.read.counters import ReadCounts
from cordee.systems.data.node.read.order.permutation import mixed, shuffled
from cordee.systems.data.node.read.order.position import SampleOrder
from cordee.systems.data.node.read.progress import summed

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, Any]

SLOT = 1 << 14
_MOST_EXACT = 1 << 16


def slot_counts(weights: Sequence[float]) -> tuple[int, ...]:
    """Return how many samples of each set a slot holds.

    A slot has about 16,384 samples; its size is chosen so that weights such as 0.7 and 0.3, or 1 and 2, come out exactly.
    Where no size does, the shares are right to one in 32,768.

    Raises:
        UsageError: a weight is not a positive number, or less than a slot can show.
    """
    for weight in weights:
        if not (isinstance(weight, (int, float)) and math.isfinite(weight) and weight > 0):
            raise UsageError(
                "a weight is no positive number", given=weight, allowed="for example {'web': 0.7, 'code': 0.3}"
            )
    exact = [Fraction(str(weight)) for weight in weights]
    shares = [weight / sum(exact) for weight in exact]
    common = 1
    for share in shares:
        common = common * share.denominator // math.gcd(common, share.denominator)
    slot = common * max(1, round(SLOT / common)) if common <= _MOST_EXACT else SLOT
    counts = [int(share * slot) for share in shares]
    by_remainder = sorted(range(len(shares)), key=lambda number: (counts[number] - shares[number] * slot, number))
    for number in by_remainder[: slot - sum(counts)]:
        counts[number] += 1
    if min(counts) == 0:
        raise UsageError(
            "a weight is too small beside the others",
            given=f"{weights[counts.index(0)]} of {sum(weights)}",
            allowed=f"at least one in {slot}",
        )
    return tuple(counts)


class Mix(SampleSource):
    """Several sources as one: sample numbers of the first, then those of the second, and so on; `order` mixes them.

    Args:
        sources: by the name that the user gave them.
        weights: by the same names.
        samples_per_epoch: what is called an epoch of the mix; default the sum of the sizes.
    """

    def __init__(
        self, sources: Mapping[str, SampleSource], weights: Mapping[str, float], samples_per_epoch: Optional[int] = None
    ) -> None:
        names = sorted(sources)
        self.sources = [sources[name] for name in names]
        self._counts = slot_counts([weights[name] for name in names])
        self.name = "+".join(names)
        self._firsts = [0]
        for source in self.sources:
            self._firsts.append(self._firsts[-1] + source.size)
        self.size = samples_per_epoch or self._firsts[-1]
        self.ahead_samples = max(source.ahead_samples for source in self.sources)
        self.at_once = max(source.at_once for source in self.sources)
        parts = [[name, source.identity, source.size] for name, source in zip(names, self.sources)]
        text = json.dumps([parts, self._counts, self.size])
        self.identity = hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def counts(self) -> ReadCounts:  # type: ignore[override]
        """The sum of what the sources have read."""
        return summed([source.counts for source in self.sources])

    def order(self, seed: int, shuffle: bool) -> "MixedOrder":
        """Return the order of the mix's samples."""
        sizes = tuple(source.size for source in self.sources)
        return MixedOrder(sizes, self._counts, seed, shuffle)

    def read(self, samples: "Array") -> "list[Sample]":
        return list(self.begin(samples)())

    def begin(self, samples: "Array") -> "Callable[[], Samples]":
        begun = [
            (where, self.sources[number].begin(samples[where] - self._firsts[number]))
            for number, where in self._parts(samples)
        ]

        def samples_read() -> Samples:
            found: list[Any] = [None] * len(samples)
            for where, wait in begun:
                for place, value in zip(where.tolist(), wait()):
                    found[place] = value
            return found

        return samples_read

    @property
    def in_parts(self) -> bool:  # type: ignore[override]
        """Whether all sources can be read in parts."""
        return all(source.in_parts for source in self.sources)

    def unread(self, samples: "Array") -> Unread:
        return _Unread(
            [
                (where, self.sources[number].unread(samples[where] - self._firsts[number]))
                for number, where in self._parts(samples)
            ]
        )

    def expect(self, samples: "Array") -> None:
        for number, where in self._parts(samples):
            self.sources[number].expect(samples[where] - self._firsts[number])

    def describe(self, sample: int) -> str:
        source, own = self.part(sample)
        return source.describe(own)

    def part(self, sample: int) -> tuple[SampleSource, int]:
        """Return the source that gives a sample, and its number there."""
        number = max(at for at, first in enumerate(self._firsts[:-1]) if first <= sample)
        return self.sources[number], sample - self._firsts[number]

    def close(self) -> None:
        for source in self.sources:
            source.close()

    def _parts(self, samples: "Array") -> "list[tuple[int, Array]]":
        """Return (source, places in `samples`) of every source that is asked."""
        import numpy

        owners = numpy.searchsorted(numpy.asarray(self._firsts[1:]), samples, side="right")
        return [(int(number), numpy.flatnonzero(owners == number)) for number in numpy.unique(owners)]


class _Unread(Unread):
    """What is to be read of each source, and where it belongs, in ascending order."""

    def __init__(self, parts: "list[tuple[Array, Unread]]") -> None:
        self._parts = parts
        self.bytes = sum(unread.bytes for _, unread in parts)

    def read(self, begin: int, end: int) -> Samples:
        found: list[Any] = [None] * (end - begin)
        for where, unread in self._parts:
            first, last = where.searchsorted([begin, end]).tolist()
            if first < last:
                for place, value in zip(where[first:last].tolist(), unread.read(first, last)):
                    found[place - begin] = value
        return found


class MixedOrder:
    """Which sample of a Mix stands at a position."""

    def __init__(self, sizes: tuple[int, ...], counts: tuple[int, ...], seed: int, shuffle: bool) -> None:
        self._sizes, self._counts, self._seed = sizes, counts, seed
        self._slot = sum(counts)
        self._orders = [SampleOrder(size, mixed(seed, number + 1), shuffle) for number, size in enumerate(sizes)]

    def samples(self, positions: "Array") -> "Array":
        """Return the samples (int64, numbered over all sources) at positions of the stream."""
        import numpy

        found = numpy.empty(len(positions), numpy.int64)
        slots, inside = positions // self._slot, positions % self._slot
        for slot in numpy.unique(slots):
            here = numpy.flatnonzero(slots == slot)
            owners, places = _drawn_slot(self._counts, self._seed, int(slot))
            owners, places = owners[inside[here]], places[inside[here]]
            first = 0
            for number, order in enumerate(self._orders):
                own = owners == number
                stream = places[own] + int(slot) * self._counts[number]
                found[here[own]] = first + order.samples(stream)
                first += self._sizes[number]
        return found


@lru_cache(maxsize=8)
def _drawn_slot(counts: tuple[int, ...], seed: int, slot: int) -> "tuple[Array, Array]":
    """Return, for every place of a slot, the set that gives the sample and which of its samples in this slot it is."""
    import numpy

    size = sum(counts)
    drawn = shuffled(numpy.arange(size), size, mixed(seed, 0), slot)
    owners = numpy.searchsorted(numpy.cumsum(counts), drawn, side="right")
    places = numpy.empty(size, numpy.int64)
    for number, count in enumerate(counts):
        places[owners == number] = numpy.arange(count)
    return owners, places
