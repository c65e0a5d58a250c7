"""Which samples go into which shard."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

from cordee.systems.data.node.shards.members import BLOCK, END, header_bytes

if TYPE_CHECKING:
    import numpy

    from cordee.systems.data.node.shards.entries import Sample
    from cordee.systems.data.pack._base import PackPlan

_LONG_KEY = 64


def cut(plan: PackPlan, shard_bytes: int) -> list[tuple[int, int]]:
    """Return (first, last + 1) of each shard's samples: shards of about equal size, none larger than asked for.

    A sample that is larger than a shard should be gets one of its own.
    """
    import numpy

    sizes = _sizes(plan)
    ends = numpy.cumsum(sizes)
    total = int(ends[-1])
    room = shard_bytes - len(END)
    # Equal shares instead of full shards and one small rest.
    share = -(-total // max(1, -(-total // room)))
    share = min(room, share + int(min(sizes.max(), share // 16)))
    found, start, begin = [], 0, 0
    while start < len(plan):
        stop = int(numpy.searchsorted(ends, begin + share, side="right"))
        stop = max(stop, start + 1)
        found.append((start, stop))
        start, begin = stop, int(ends[stop - 1])
    return found


def _sizes(plan: PackPlan) -> numpy.ndarray[Any, Any]:
    """Return what each sample takes in a shard."""
    import numpy

    samples = list(plan.samples())
    entries = list(chain.from_iterable([sample.entries for sample in samples]))
    lengths = numpy.fromiter([entry.length for entry in entries], "i8", len(entries))
    sizes = BLOCK + -(-lengths // BLOCK) * BLOCK
    starts = numpy.cumsum([0, *[len(sample.entries) for sample in samples[:-1]]])
    found = numpy.add.reduceat(sizes, starts)
    found += numpy.fromiter([2 * BLOCK if sample.label is not None else 0 for sample in samples], "i8", len(samples))
    very_large = bool((lengths >> 32).any())
    for number, (key, _, _, _, renamed) in enumerate(samples):
        if renamed or very_large or len(key) > _LONG_KEY:
            found[number] += _more_headers(samples[number])
    return found


def _more_headers(sample: Sample) -> int:
    """Return what headers take beyond one block each."""
    more = 0
    for field, entry in zip(sample.fields, sample.entries, strict=True):
        original = entry.name if sample.renamed else None
        name = sample.key + b"." + field.encode("utf-8", "surrogateescape")
        more += header_bytes(name, entry.length, original) - BLOCK
    return more
