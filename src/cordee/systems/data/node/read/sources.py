"""From an address to a source of samples, by what lies there."""

from __future__ import annotations

import os
from typing import Any

from cordee.core.errors import DataError
from cordee.machine.foreign_files import regular
from cordee.systems.data.node.read._base import SampleSource
from cordee.systems.data.node.read.packed.source import PackedSource
from cordee.systems.data.node.read.plain import PlainFolder
from cordee.systems.data.node.read.tokens.index import find_token_set
from cordee.systems.data.node.read.tokens.source import TokenSource
from cordee.systems.data.node.shards.index import INDEX_NAME, MAGIC


def open_source(address: str, **options: Any) -> SampleSource:
    """Return the source of what lies at an address.

    A packed data set (its folder, its index), a token set (`.bin` and `.idx`, the path of both without an ending, a folder
    with one; a `.bin` alone with `dtype=`), an `s3://` address of one of these, or a folder of files.

    Args:
        options: as the source takes them.

    Raises:
        DataError: there is nothing, or nothing that can be read by samples.
        TypeError: the source knows no such option.
    """
    if address.startswith("s3://"):
        return _in_store(address, options)
    path = os.path.expanduser(address)
    if os.path.lexists(os.path.join(path, INDEX_NAME)) or _is_index(path):
        return PackedSource(path, **options)
    if find_token_set(path) is not None or options.get("dtype"):
        return TokenSource(path, **options)
    if os.path.isdir(path):
        _refuse_shards(path)
        return PlainFolder(path, **options)
    if path.endswith(".bin") and os.path.isfile(path):
        raise DataError(
            "the tokens have no .idx beside them, which says their type",
            given=address,
            allowed="a token set (.bin and .idx), or a .bin alone and the type of its tokens",
            next='name the type: cordee.dataset(..., length=1024, dtype="uint16") for nanoGPT\'s train.bin',
        )
    raise DataError(
        "there is no data set" if not os.path.exists(path) else "samples cannot be read from this file",
        given=address,
        allowed="a packed data set, a token set (.bin and .idx), a folder of files, an s3:// address",
        next="`cordee data pack` makes a data set of a folder, an archive, CSV or Parquet",
    )


def _in_store(address: str, options: dict[str, Any]) -> SampleSource:
    """Return the source of what lies in an object store."""
    from cordee.systems.data.node.read.remote import ObjectMissing
    from cordee.systems.data.node.read.tokens.store import find_remote_set

    named = address.endswith((".bin", ".idx"))
    if (named or {"length", "documents"} & set(options)) and (found := find_remote_set(address)):
        return TokenSource(found, **options)
    try:
        return PackedSource(address, **options)
    except ObjectMissing as error:
        if not named and (found := find_remote_set(address)):
            return TokenSource(found, **options)
        raise DataError(
            "there is no data set",
            given=address,
            allowed=f"the address of a packed data set ({INDEX_NAME}) or of a token set (.bin and .idx)",
            next="`cordee data pack --to s3://...` makes the first; copy both files of the second there",
        ) from error


def _is_index(path: str) -> bool:
    try:
        with open(path, "rb", opener=regular) as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def _refuse_shards(path: str) -> None:
    """Refuse a folder of tar shards: without an index they are only read from front to back."""
    with os.scandir(path) as entries:
        names = [entry.name for entry in entries]
    shards = [name for name in names if name.endswith(".tar")]
    if not shards:
        return
    packing = ".packing" in names
    raise DataError(
        f"the {len(shards)} shards here have no index" + (": they are still being packed" if packing else ""),
        given=path,
        allowed=f"shards with their {INDEX_NAME}",
        next="wait for `cordee data pack`, or give its command again: it continues where it stopped"
        if packing
        else f"`cordee data pack {path} --index-only` makes it; the shards stay as they are",
    )
