"""From the indices of the shards to the index of the data set: written last, so that its presence means that all is there."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from cordee.core.errors import CorruptDataError
from cordee.systems.data.node.shards.index import INDEX_NAME, NO_LABEL, ShardIndex, write_index
from cordee.systems.data.pack._base import PackResult, PackTarget

if TYPE_CHECKING:
    import numpy

    from cordee.systems.data.pack._base import PackPlan
    from cordee.systems.data.pack.state import PackState

LEFT_OUT_NAME = "left-out.json"


def merge_parts(plan: PackPlan, state: PackState, shards: int, to: str, name: str, place: PackTarget) -> PackResult:
    """Write the data set's index from those of its shards, and beside it a report of what was left out.

    Raises:
        CorruptDataError: the index of a shard is damaged; the next call makes that shard again.
    """
    parts = []
    for number in range(shards):
        part = state.open_part(number)
        if part is None:
            raise CorruptDataError(
                "the index of a shard is damaged", given=str(state.part(number)), next="repeat the command"
            )
        parts.append(part)
    left_out = {kind: list(names) for kind, names in plan.left_out.items()}
    unreadable = [text for number in range(shards) for text in state.left_out(number)]
    if unreadable:
        left_out["unreadable"] = left_out.get("unreadable", []) + unreadable
    if left_out:
        report = state.folder / LEFT_OUT_NAME
        report.write_text(json.dumps(left_out, indent=2) + "\n", encoding="utf-8")
        place.take(str(report), LEFT_OUT_NAME)
    merged = state.folder / INDEX_NAME
    identity = write_merged(str(merged), parts, name, plan.classes)
    place.take(str(merged), INDEX_NAME)
    return PackResult(
        path=to,
        index=f"{to.rstrip('/')}/{INDEX_NAME}",
        shards=shards,
        samples=sum(part.samples for part in parts),
        bytes=sum(part.bytes for part in parts),
        seconds=0.0,
        left_out=left_out,
        id=identity,
    )


def write_merged(path: str, parts: list[ShardIndex], name: str, classes: tuple[str, ...], root: str = ".") -> str:
    """Write one index of several, each of one shard; return its id. Fields become those of all parts together."""
    import numpy

    fields = tuple(sorted({field for part in parts for field in part.fields}))
    kinds = ["offset", "length", "crc32"]
    if not all("crc32" in part.columns for part in parts):
        kinds.remove("crc32")
    columns = {kind: numpy.concatenate([_spread(part, kind, fields) for part in parts]) for kind in kinds}
    columns["keys"] = numpy.concatenate([part.columns["keys"] for part in parts])
    columns["shard"] = numpy.repeat(numpy.arange(len(parts), dtype="<u4"), [part.samples for part in parts])
    ends, base = [], 0
    for part in parts:
        ends.append(part.columns["key_end"] + numpy.uint64(base))
        base += len(part.columns["keys"])
    columns["key_end"] = numpy.concatenate(ends)
    if any("label" in part.columns for part in parts):
        columns["label"] = numpy.concatenate(
            [part.columns.get("label", numpy.full(part.samples, NO_LABEL, "<i8")) for part in parts]
        )
    shards = [part.shards[0] for part in parts]
    return write_index(path, name=name, fields=fields, classes=classes, shards=shards, columns=columns, root=root)


def _spread(part: ShardIndex, kind: str, fields: tuple[str, ...]) -> numpy.ndarray[Any, Any]:
    """Return a column of a part with a column for every field of the data set."""
    import numpy

    column = part.columns[kind]
    if part.fields == fields:
        return column
    found = numpy.full((part.samples, len(fields)), -1 if kind == "length" else 0, column.dtype)
    found[:, [fields.index(field) for field in part.fields]] = column
    return found
