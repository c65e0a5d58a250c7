"""How many samples and bytes a batch holds, found by looking at it: loaders agree on no form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_MOST_DEPTH = 8


def size_of(batch: Any, expected: int = 0) -> tuple[int, int]:
    """Return samples and bytes of a batch.

    An object's own `samples` and `bytes` count, where it has them. Else a mapping, or a short list or tuple of things that
    are equally long, holds columns; any other list holds samples; an array holds as many samples as it is long.

    Args:
        batch: what a loader gave.
        expected: samples that were asked for; tells a list of so many samples from a list of columns. 0: not known.
    """
    samples, size = getattr(batch, "samples", None), getattr(batch, "bytes", None)
    counted = samples if isinstance(samples, int) else _samples(batch, expected)
    return counted, size if isinstance(size, int) else _bytes(batch, 0)


def _samples(batch: Any, expected: int) -> int:
    if isinstance(batch, Mapping):
        lengths = [_length(value) for value in batch.values()]
        long = [length for length in lengths if length is not None]
        return max(long) if long else 1
    if isinstance(batch, (list, tuple)):
        lengths = [_length(value) for value in batch]
        columns = None not in lengths and len(set(lengths)) == 1 and not isinstance(batch[0], (str, bytes, Mapping))
        if (expected and len(batch) == expected) or not columns:
            return len(batch)
        return lengths[0] or 0 if len(batch) <= 16 else len(batch)
    length = _length(batch)
    return 1 if length is None or isinstance(batch, (str, bytes)) else length


def _length(value: Any) -> int | None:
    shape = getattr(value, "shape", None)
    if shape is not None:
        return int(shape[0]) if len(shape) else None
    try:
        return len(value)
    except TypeError:
        return None


def _bytes(value: Any, depth: int) -> int:
    size = getattr(value, "nbytes", None)
    if isinstance(size, int):
        return size
    if isinstance(value, (bytes, bytearray, str)):
        return len(value)
    if depth < _MOST_DEPTH:
        if isinstance(value, Mapping):
            return sum(_bytes(part, depth + 1) for part in value.values())
        if isinstance(value, Sequence):
            return sum(_bytes(part, depth + 1) for part in value)
        if hasattr(value, "__dict__"):
            return sum(_bytes(part, depth + 1) for part in vars(value).values())
    return 0
