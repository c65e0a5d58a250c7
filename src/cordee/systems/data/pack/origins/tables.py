"""A folder whose files are tables or records: their rows are its samples. Other files that hold many samples are refused."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from cordee.core.errors import UsageError
from cordee.systems.data.node.shards.containers import (
    ROWS,
    TFRECORD,
    ContainerFiles,
    advice,
    as_they_are,
    held,
    splits_among,
)
from cordee.systems.data.node.shards.entries import Listing
from cordee.systems.data.node.shards.groups import NOT_ASKED_FOR, chosen
from cordee.systems.data.node.shards.index import INDEX_NAME
from cordee.systems.data.pack._base import SampleOrigin
from cordee.systems.data.pack.origins.parquet import ParquetOrigin
from cordee.systems.data.pack.origins.tfrecords import TFRecordsOrigin

_INDEX = INDEX_NAME.encode()
_BESIDE = "beside the tables, no rows"


class Rows(NamedTuple):
    """The origin of the rows; what of the folder is left out, by kind; whether the patterns chose among files already."""

    origin: SampleOrigin
    left_out: dict[str, list[str]]
    files_chosen: bool


def rows_of(
    origin: SampleOrigin,
    listing: Listing,
    include: Sequence[str],
    exclude: Sequence[str],
    options: Mapping[str, Any],
    notes: list[str],
) -> Rows | None:
    """Return the rows that the files of a folder hold; None where its files themselves are samples; `notes` may get one.

    Args:
        include, exclude: patterns of files; where they are like none of the files, of the fields of rows.

    Raises:
        UsageError: the files are of several kinds or splits, or of a kind whose samples cannot be packed.
    """
    found = held(listing.entries, origin.root)
    if found is None or (TFRECORD not in found.kinds and any(entry.name == _INDEX for entry in listing.entries)):
        return None
    entries = [entry for entry in listing.entries if chosen(entry, include, exclude)]
    names = {name for some in found.kinds.values() for name in some}
    kept = names & {entry.name for entry in entries}
    files_chosen = not _is_one_table(found) or (bool(kept) if include else kept != names)
    if files_chosen:
        found = held(entries, origin.root)
        if found is None:
            return None
        if note := as_they_are(found, include):
            notes.append(note)
            return None
    if not _is_one_table(found) or origin.root is None:
        raise _refused(origin, found)
    ((kind, files),) = found.kinds.items()
    _refuse_splits(origin, files, bool(include) and files_chosen)
    paths = [os.fsdecode(origin.root + b"/" + name) for name in files]
    rows: SampleOrigin
    if kind == TFRECORD:
        rows = TFRecordsOrigin(paths, origin.name)
    else:
        rows = ParquetOrigin(paths, origin.name, options.get("label_column"))
    left_out = dict(listing.left_out)
    if found.about:
        left_out[_BESIDE] = [name.decode("utf-8", "backslashreplace") for name in found.about]
    if files_chosen and len(entries) < len(listing.entries):
        left_out[NOT_ASKED_FOR] = [f"{len(listing.entries) - len(entries)} files"]
    return Rows(rows, left_out, files_chosen)


def _is_one_table(found: ContainerFiles) -> bool:
    return len(found.kinds) == 1 and not found.others and next(iter(found.kinds)) in ROWS


def _refused(origin: SampleOrigin, found: ContainerFiles) -> UsageError:
    folder = os.fsdecode(origin.root) if origin.root is not None else origin.name
    return UsageError(
        "files that each hold many samples would be packed as one sample each",
        given=f"{folder}: {found.text()}",
        allowed="files that are samples; or a folder of nothing but Parquet, Arrow or TFRecord files",
        next=advice(found, folder)
        if origin.root is not None
        else "pack them from a folder: unpack the archive, or copy the objects there",
    )


def _refuse_splits(origin: SampleOrigin, files: Sequence[bytes], were_named: bool) -> None:
    """Refuse to join what belongs apart: rows have numbers for names, and nobody could tell them apart again."""
    splits = splits_among(files)
    if len(splits) > 1 and not were_named:
        raise UsageError(
            f"the files are of several splits: {', '.join(splits)}",
            given=f"{origin.name}: {len(files)} files",
            allowed="the files of one split",
            next=f"name them: --include '*{splits[0]}*'; several --include pack several splits as one data set",
        )
    parts = sorted({part for name in files for part in name.split(b"/")[:-1] if b"=" in part})
    if parts:
        raise UsageError(
            "the tables are partitioned: the names of their folders hold a column that no file has",
            given=f"{origin.name}: {os.fsdecode(parts[0])}/",
            allowed="files that hold all their columns",
            next="write them with this column: pyarrow.dataset.dataset(FOLDER, partitioning='hive').to_table()",
        )
