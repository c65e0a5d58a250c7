"""How many bytes a collective moves between which ranks, under an assumed algorithm: dumps say what was called, not how it was carried out. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from cordee.systems.explain.flight.rings import ALL_TO_ALL

# PyTorch's names of types, by their bytes.
_TYPE_BYTES = {
    "Float": 4,
    "BFloat16": 2,
    "Half": 2,
    "Double": 8,
    "Long": 8,
    "Int": 4,
    "Short": 2,
    "Char": 1,
    "Byte": 1,
    "Bool": 1,
    "UInt16": 2,
    "UInt32": 4,
    "UInt64": 8,
    "ComplexHalf": 4,
    "ComplexFloat": 8,
    "ComplexDouble": 16,
}
_MOST_BYTES = 1 << 60
_FLOAT8 = re.compile(r"Float8_\w{1,20}")
_REDUCED = ("all_reduce", "allreduce_coalesced", "all_reduce_barrier", "barrier", "_all_reduce_sparse")
_GATHERED = (
    "all_gather",
    "_all_gather_base",
    "all_gather_single",
    "ALLGATHER_coalesced",
    "all_gather_into_tensor_coalesced",
)
_SCATTERED = ("reduce_scatter", "_reduce_scatter_base", "reduce_scatter_single", "reduce_scatter_tensor_coalesced")
_PASSED_ON = ("broadcast", "_broadcast_oop", "reduce", "_reduce_oop")

ASSUMED = {
    "all_reduce": "a ring in the order of the group's ranks: each sends 2 (k-1)/k of the tensor to the next of k",
    "all_gather": "the same ring: each sends k-1 shards to the next",
    "reduce_scatter": "the same ring: each sends (k-1)/k of the tensor to the next",
    "broadcast, reduce": "a chain along the ring; the root is in no dump, so (k-1)/k of the tensor counts for each link",
    "all_to_all": "straight from each to each; where the split is not in the dump, in equal parts",
    "scatter": "straight from the root, in equal parts",
    "send": "as it was called",
}


class CallVolume(NamedTuple):
    """What one rank sends in one call: bytes to the next rank of the group, and to every other one, by its place in the group."""

    next: float = 0.0
    each: tuple[float, ...] = ()


def bytes_of(sizes: Sequence[Sequence[int]], types: Sequence[str]) -> tuple[int, ...] | None:
    """Return the bytes of each tensor, None where a type is not known.

    Raises:
        TypeError: these are no sizes.
    """
    found = []
    for at, size in enumerate(sizes):
        name = types[min(at, len(types) - 1)] if types else ""
        width = _TYPE_BYTES.get(name, 1 if _FLOAT8.fullmatch(name) else 0)
        if not width:
            return None
        for length in size:
            if type(length) is not int or length < 0:
                raise TypeError
            width *= length
        if width > _MOST_BYTES:
            raise TypeError
        found.append(width)
    return tuple(found)


def volume_of(op: str, inputs: tuple[int, ...], size: int) -> CallVolume | None:
    """Return what a rank sends in a collective of a group of `size`, None where its dump does not say it.

    Args:
        inputs: the bytes of the rank's input tensors.
    """
    total = sum(inputs)
    if size < 2:
        return CallVolume()
    if op in _REDUCED:
        return CallVolume(2 * (size - 1) / size * total)
    if op in _GATHERED:
        return CallVolume(float((size - 1) * total))
    if op in _SCATTERED or op in _PASSED_ON:
        return CallVolume((size - 1) / size * total)
    if op in ALL_TO_ALL:
        return CallVolume(each=tuple(map(float, inputs)) if len(inputs) == size else (total / size,) * size)
    if op == "scatter":
        return CallVolume(each=(total / size,) * size)
    return None
