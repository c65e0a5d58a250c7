"""Small packed data sets for tests, and what other eyes than ours find in them."""

from __future__ import annotations

import hashlib
import os
import tarfile
import zlib
from pathlib import Path
from typing import Any

import cordee
from cordee.systems.data.node.shards.index import open_index
from cordee.systems.data.pack._base import PackOptions, PackResult
from cordee.systems.data.pack.build import pack, plan_of


def packed(source: Path, to: Path, **given: Any) -> PackResult:
    """Pack a source into small shards; `options` and `target` are those of packing, all else is how it is planned."""
    options = {"shard_bytes": 100_000, "durable": False, **given.pop("options", {})}
    target = given.pop("target", "webdataset")
    if target == "squashfs":
        given["origin_options"] = {"as_files": True, **given.get("origin_options", {})}
    return pack(plan_of(str(source), **given), str(to), PackOptions(**options), target=target)


def digests(folder: Path) -> dict[str, str]:
    """Return a digest of every file below a folder by its path."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


def members(folder: Path) -> dict[str, bytes]:
    """Return what Python's tarfile finds in the shards of a folder: bytes by name."""
    found: dict[str, bytes] = {}
    for shard in sorted(folder.glob("*.tar")):
        with tarfile.open(shard) as archive:
            for member in archive:
                if member.isfile():
                    assert member.name not in found
                    found[member.name] = archive.extractfile(member).read()  # type: ignore[union-attr]
    return found


def fields_by_key(folder: Path) -> dict[str, dict[str, bytes]]:
    """Return every sample as the index says where it lies."""
    index = open_index(folder)
    found = {}
    for sample in range(index.samples):
        fields = {}
        with open(index.shard_path(int(index.columns["shard"][sample])), "rb") as shard:
            for number, field in enumerate(index.fields):
                length = int(index.columns["length"][sample, number])
                if length < 0:
                    continue
                shard.seek(int(index.columns["offset"][sample, number]))
                fields[field] = shard.read(length)
                assert zlib.crc32(fields[field]) == index.columns["crc32"][sample, number]
        found[index.key(sample)] = fields
    return found


def samples_read(place: Path, **options: Any) -> dict[str, dict[str, Any]]:
    """Return what `cordee.dataset` gives: fields (and `label`) by key, in the order of the samples."""
    data = cordee.dataset(place, batch=4, shuffle=False, keys=True, **options)
    found: dict[str, dict[str, Any]] = {}
    for batch in data:
        for at, key in enumerate(batch.pop("key")):
            assert key not in found
            values = {name: column[at] for name, column in batch.items()}
            found[key] = {name: value for name, value in values.items() if value is not None}
    data.close()
    return found


def tree(folder: Path) -> dict[bytes, bytes | None]:
    """Return the bytes of every file below a folder, None for empty folders."""
    found: dict[bytes, bytes | None] = {}
    root = os.fsencode(folder)
    for above, folders, files in os.walk(root):
        for name in files:
            with open(above + b"/" + name, "rb") as file:
                found[os.path.relpath(above + b"/" + name, root)] = file.read()
        if not folders and not files:
            found[os.path.relpath(above, root)] = None
    return found
