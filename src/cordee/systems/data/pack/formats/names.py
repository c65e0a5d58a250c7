"""Names that files had and samples could not keep, beside shards that have no room for them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from cordee.core.errors import CorruptDataError
from cordee.machine.foreign_files import parse_json
from cordee.systems.data.node.shards.index import ShardIndex
from cordee.systems.data.node.shards.members import TarMember
from cordee.systems.data.pack.shards.indexes import read_beside

if TYPE_CHECKING:
    from cordee.systems.data.pack._base import PackPlan

NAMES = "names.json"


def names_of(plan: PackPlan) -> bytes | None:
    """Return what has to be kept so that unpacking gives the same names and empty folders; None: nothing has."""
    renamed = {}
    for sample in plan.samples():
        for field, entry in zip(sample.fields, sample.entries, strict=True):
            kept = os.fsdecode(sample.key) + "." + field
            if kept != (name := os.fsdecode(entry.name)):  # another name, or an ending with capitals
                renamed[kept] = name
    folders = [os.fsdecode(folder) for folder in plan.empty_folders]
    return json.dumps({"names": renamed, "folders": folders}, indent=1).encode() if renamed or folders else None


def members_of(index: ShardIndex, shard: int, samples: Sequence[int]) -> Iterator[TarMember]:
    """Yield what a shard holds as if it were a tar file: the files that its samples were, and first the empty folders.

    Raises:
        CorruptDataError: what says their names is no JSON.
    """
    try:
        kept: dict[str, Any] = parse_json(read_beside(index, NAMES) or b"{}")
    except ValueError as error:
        raise CorruptDataError(f"{NAMES} is no JSON: {error}", given=index.root) from None
    names: dict[str, str] = kept.get("names", {})
    for folder in kept.get("folders", []) if shard == 0 else []:
        yield TarMember(os.fsencode(folder), None, 0, 0, 0, "folder")
    offset, length = index.columns["offset"], index.columns["length"]
    for sample in samples:
        key = index.key(sample)
        for number, field in enumerate(index.fields):
            size = int(length[sample, number])
            if size >= 0:
                name = f"{key}.{field}"
                begin = int(offset[sample, number])
                original = os.fsencode(names[name]) if name in names else None
                yield TarMember(os.fsencode(name), original, begin, begin, size, "file")
