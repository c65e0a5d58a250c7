"""The order of samples: a pure function of (seed, epoch, position), the same on every machine and in every version.

A global shuffle needs no list of all samples: any position is computed by itself, so that a rank of any number of ranks
begins anywhere at once, and what has to be remembered is a few integers.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, Any]

_MASK = (1 << 64) - 1
_GOLDEN, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
# Below this size the order is drawn as a whole: few bits leave a Feistel network too few permutations.
_DRAWN = 1 << 16
_ROUNDS = 6


def shuffled(positions: "Array", size: int, seed: int, epoch: int) -> "Array":
    """Return which samples stand at `positions` of an epoch's shuffled order.

    Args:
        positions: integers from 0 to size - 1, any shape.
        size: samples of the data set.
        seed, epoch: any integers; each pair is an order of its own.

    Returns:
        int64, the shape of `positions`; over all positions every sample occurs once.
    """
    import numpy

    if size <= _DRAWN:
        return _drawn(size, seed, epoch)[positions]
    bits = (size - 1).bit_length()
    keys = _keys(seed, epoch)
    found = numpy.asarray(positions).astype(numpy.uint64).reshape(-1)
    found = _network(found, bits, keys)
    outside = numpy.flatnonzero(found >= size)
    while len(outside):  # walk on until inside: the network permutes up to the next power of two
        found[outside] = _network(found[outside], bits, keys)
        outside = outside[found[outside] >= size]
    return found.astype(numpy.int64).reshape(numpy.shape(positions))


def mixed(value: int, *more: int) -> int:
    """Return 64 bits that depend on all the integers given (SplitMix64's finalizer, Steele and others 2014)."""
    state = 0
    for part in (value, *more):
        state = (state + (part & _MASK) + _GOLDEN) & _MASK
        state = ((state ^ (state >> 30)) * _FIRST) & _MASK
        state = ((state ^ (state >> 27)) * _SECOND) & _MASK
        state ^= state >> 31
    return state


@lru_cache(maxsize=64)
def _keys(seed: int, epoch: int) -> tuple[int, ...]:
    return tuple(mixed(seed, epoch, number) for number in range(_ROUNDS))


@lru_cache(maxsize=8)
def _drawn(size: int, seed: int, epoch: int) -> "Array":
    """Return the whole order of a small data set: samples sorted by a random number each."""
    import numpy

    samples = numpy.arange(size, dtype=numpy.uint64)
    order = numpy.argsort(_hashed(samples, mixed(seed, epoch)), kind="stable").astype(numpy.int64)
    order.flags.writeable = False
    return order


def _network(values: "Array", bits: int, keys: tuple[int, ...]) -> "Array":
    """Permute the numbers of `bits` bits: a Feistel network whose halves take turns."""
    import numpy

    low_bits = bits // 2
    low_mask, high_mask = numpy.uint64((1 << low_bits) - 1), numpy.uint64((1 << (bits - low_bits)) - 1)
    low, high = values & low_mask, values >> numpy.uint64(low_bits)
    for number, key in enumerate(keys):
        if number % 2:
            low = low ^ (_hashed(high, key) & low_mask)
        else:
            high = high ^ (_hashed(low, key) & high_mask)
    return (high << numpy.uint64(low_bits)) | low


def _hashed(values: "Array", key: int) -> "Array":
    """Return 64 random bits for each value; wraps as unsigned arithmetic does."""
    import numpy

    with numpy.errstate(over="ignore"):
        state = (values + numpy.uint64(key)) * numpy.uint64(_GOLDEN)
        state ^= state >> numpy.uint64(32)
        state *= numpy.uint64(_FIRST)
        state ^= state >> numpy.uint64(29)
        state *= numpy.uint64(_SECOND)
        state ^= state >> numpy.uint64(32)
    return state
