"""A data set that is packed already: beside it lies what it was made of, so that a second call knows whether that has changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cordee.core.errors import UsageError
from cordee.machine.foreign_files import parse_json
from cordee.systems.data.node.shards.index import INDEX_NAME
from cordee.systems.data.pack._base import PackResult, PackTarget
from cordee.systems.data.pack.shards.indexes import open_index_at, read_beside
from cordee.systems.data.pack.state import PackState, differences, write_whole

if TYPE_CHECKING:
    from cordee.systems.data.pack._base import PackPlan

RECORD = "packed.json"
_SCHEMA = "cordee.packed/1"
ANEW = "--restart throws it away and packs anew"


def keep_record(about: dict[str, Any], state: PackState, place: PackTarget) -> None:
    """Put what the data set is made of where its index will be."""
    record = state.folder / RECORD
    write_whole(record, written_record(about))
    place.take(str(record), RECORD)


def finished(plan: PackPlan, to: str, about: dict[str, Any], sizes: dict[str, int]) -> PackResult:
    """Return what lies at `to`, where that is what packing the plan would make.

    Args:
        about: what would be packed, and how. sizes: of the files that are there.

    Raises:
        UsageError: it was made of something else, or is not whole any more.
        CorruptDataError: its index is damaged.
    """
    index = open_index_at(to)
    known = known_record(read_beside(index, RECORD))
    refuse_other(known, about, to)
    for shard in index.shards:
        if sizes.get(shard.name) != shard.bytes:
            there = f"has {sizes[shard.name]} bytes" if shard.name in sizes else "is not there"
            raise UsageError(
                f"what is packed there is not whole any more: its shard {shard.name} {there}",
                given=to,
                allowed=f"{shard.bytes} bytes",
                next=f"copy the shard there again, or {ANEW}",
            )
    return PackResult(
        path=to,
        index=f"{to.rstrip('/')}/{INDEX_NAME}",
        shards=len(index.shards),
        samples=index.samples,
        bytes=index.bytes,
        seconds=0.0,
        resumed_shards=len(index.shards),
        left_out=plan.left_out,
        id=index.id,
        already=True,
        packed_s=None if "://" in to else Path(index.path).stat().st_mtime,
    )


def refuse_other(known: dict[str, Any], about: dict[str, Any], to: str) -> None:
    """Refuse to go on where something else lies than would be packed; `known`: what is known of it, empty: nothing.

    Raises:
        UsageError: it is something else.
    """
    differ = differences(known, about)
    if differ:
        found = f"what would be packed now differs: {differ}" if known else "nothing says what it was made of"
        raise UsageError(
            f"a packed data set is there already, and {found}", given=to, allowed="a place where nothing is", next=ANEW
        )


def written_record(about: dict[str, Any]) -> str:
    """Return the text of a record."""
    return json.dumps({"schema": _SCHEMA, **about}) + "\n"


def known_record(text: bytes | None) -> dict[str, Any]:
    """Return what a record says; empty where there is none, or another one."""
    try:
        known = parse_json(text or b"{}")
    except ValueError:
        return {}
    return known if isinstance(known, dict) and known.get("schema") == _SCHEMA else {}
