"""`cordee data unpack`: the files that were packed, with their names and bytes; never outside of the target."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from isal.isal_zlib import crc32

from cordee.core.errors import UsageError
from cordee.systems.data.node.shards.groups import matches
from cordee.systems.data.node.shards.index import ShardIndex
from cordee.systems.data.node.shards.members import Damaged, TarMember, corrupt, members
from cordee.systems.data.pack._base import CHUNK_BYTES, Tell
from cordee.systems.data.pack.formats.names import members_of
from cordee.systems.data.pack.places import refuse_file
from cordee.systems.data.pack.shards.file import TAR, ShardFile, open_shard
from cordee.systems.data.pack.shards.indexes import open_index_at
from cordee.systems.data.pack.workers import Jobs, run_all
from cordee.systems.data.pack.write_faults import writing_to

_MARK = ".unpacking"
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW


@dataclass
class Unpacked:
    """What was written; `damaged`: files whose bytes are not what was packed, not written; `refused`: unsafe names."""

    path: str
    files: int = 0
    bytes: int = 0
    seconds: float = 0.0
    damaged: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)


def unpack(path: str, to: str, *, only: Sequence[str] = (), workers: int = 1, tell: Tell | None = None) -> Unpacked:
    """Write the files of a packed data set below a folder.

    Modes, owners and times are not kept by packing: files are made as this process makes files. A call that was killed
    is repeated from the start when it is made again.

    Args:
        to: a new or empty folder. only: patterns of names.

    Raises:
        UsageError: `to` holds something. DataError: no index, or the disk is full. CorruptDataError: a shard is no tar file.
    """
    began = time.monotonic()
    index = open_index_at(path)
    target = Path(os.path.abspath(to))
    refuse_file(to)
    if target.exists() and any(target.iterdir()) and not (target / _MARK).exists():
        raise UsageError(
            "the folder holds something already",
            given=to,
            allowed="a new or empty folder",
            next="choose another with --to",
        )
    with writing_to(to, "it writes all files again"):
        target.mkdir(parents=True, exist_ok=True)
        (target / _MARK).touch()
        work = _Unpacking(index, target, only)
        threads = "://" in index.root
        parts = run_all(range(len(index.shards)), work.work, workers, threads, tell or (lambda samples, size: None))
        (target / _MARK).unlink()
    found = Unpacked(to, seconds=time.monotonic() - began)
    for part in parts:
        found.files += part.files
        found.bytes += part.bytes
        found.damaged += part.damaged
        found.refused += part.refused
    return found


class _Unpacking:
    def __init__(self, index: ShardIndex, target: Path, only: Sequence[str]) -> None:
        import numpy

        self._index, self._target, self._only = index, os.fsencode(target), tuple(only)
        numbers = numpy.arange(len(index.shards))
        self._starts = numpy.searchsorted(index.columns["shard"], numbers, side="left").tolist()
        self._stops = numpy.searchsorted(index.columns["shard"], numbers, side="right").tolist()
        self._made: set[bytes] = set()

    def work(self, jobs: Jobs, add: Tell) -> Unpacked:
        """Unpack shards until none is left."""
        found = Unpacked("")
        while (number := jobs.take()) is not None:
            address = self._index.shard_path(number)
            shard = open_shard(address)
            try:
                crcs = self._crcs(number)
                for member in self._members(shard, number):
                    self._member(shard, member, crcs, found)
                    add(0, member.length)
            except Damaged as fault:
                raise corrupt(address, fault) from None
            finally:
                shard.close()
            add(self._index.shards[number].samples, 0)
        return found

    def _members(self, shard: ShardFile, number: int) -> Iterator[TarMember]:
        if shard.path.endswith(TAR):
            return members(shard.read, shard.size)
        return members_of(self._index, number, range(self._starts[number], self._stops[number]))

    def _crcs(self, number: int) -> dict[int, int | None]:
        """Return the check sums of a shard's fields by their offset."""
        part = slice(self._starts[number], self._stops[number])
        columns = self._index.columns
        there = columns["length"][part] >= 0
        offsets = columns["offset"][part][there].tolist()
        if "crc32" not in columns:
            return dict.fromkeys(offsets)
        return dict(zip(offsets, columns["crc32"][part][there].tolist(), strict=True))

    def _member(self, shard: ShardFile, member: TarMember, crcs: dict[int, int | None], found: Unpacked) -> None:
        name = member.original or member.name
        text = name.decode("utf-8", "surrogateescape")
        is_folder = member.kind == "folder"
        if not is_folder and member.offset not in crcs:
            return  # labels that packing added for other readers, and what the index left out
        if self._only and (is_folder or not any(matches(text, pattern) for pattern in self._only)):
            return
        if not _is_safe(name):
            found.refused.append(name.decode("utf-8", "backslashreplace"))
            return
        place = self._target + b"/" + name.rstrip(b"/")
        self._make_folder(place if is_folder else os.path.dirname(place))
        if is_folder:
            return
        # Nothing may begin where the next file does.
        if self._write(shard, member, place, crcs[member.offset] if member.length else 0):
            found.files += 1
            found.bytes += member.length
        else:
            found.damaged.append(name.decode("utf-8", "backslashreplace"))

    def _make_folder(self, folder: bytes) -> None:
        if folder not in self._made:
            os.makedirs(folder, exist_ok=True)
            self._made.add(folder)

    def _write(self, shard: ShardFile, member: TarMember, place: bytes, expected: int | None) -> bool:
        crc, position, end = 0, member.offset, member.offset + member.length
        descriptor = os.open(place, _CREATE, 0o666)
        try:
            while position < end:
                data = shard.read(min(end - position, CHUNK_BYTES), position)
                crc = crc32(data, crc)
                position += len(data)
                view = memoryview(data)
                while view:
                    view = view[os.write(descriptor, view) :]
        finally:
            os.close(descriptor)
        if expected is None or crc == expected:
            return True
        os.unlink(place)
        return False


def _is_safe(name: bytes) -> bool:
    """Say whether a name stays below the folder it is written to."""
    return bool(name) and not name.startswith(b"/") and b".." not in name.split(b"/") and b"\0" not in name
