"""An index of WebDataset shards that are there already, whoever wrote them."""

from __future__ import annotations

import hashlib
import os
import re
import time
from dataclasses import dataclass, field
from typing import Any

from cordee.core.errors import CorruptDataError, DataError, UsageError
from cordee.systems.data.node.shards.index import INDEX_NAME, Shard, ShardIndex, write_index
from cordee.systems.data.node.shards.members import Damaged, TarMember, corrupt, members
from cordee.systems.data.pack._base import PackResult, PackTarget, Tell
from cordee.systems.data.pack.places import open_place, work_folder
from cordee.systems.data.pack.shards.columns import ShardColumns
from cordee.systems.data.pack.shards.file import TAR, ShardFile, field_crc, open_shard
from cordee.systems.data.pack.shards.indexes import open_index_at
from cordee.systems.data.pack.shards.merge import write_merged
from cordee.systems.data.pack.state import PackState
from cordee.systems.data.pack.workers import Jobs, run_all
from cordee.systems.data.pack.write_faults import writing_to
from cordee.wire.stores import Stored, open_store

# As WebDataset splits a member's name: the key ends at the first dot after the last slash.
_NAME = re.compile(rb"((?:.*/)?[^/.]+)\.([^/]*)", re.DOTALL)
_FEW = 20


@dataclass
class Indexed:
    """What an index was made of; `duplicates`: keys that occur more than once, the first of them by name."""

    packed: PackResult
    duplicates: int = 0
    duplicate_keys: list[str] = field(default_factory=list)


def index_shards(
    source: str, to: str | None = None, *, name: str = "", workers: int = 1, crc: bool = True, tell: Tell | None = None
) -> Indexed:
    """Write the index of the tar files in a folder; goes on where an earlier call ended.

    Args:
        source: a folder, or an address in a store, of tar files.
        to: the folder or address in which the index is written; default: beside the shards.
        crc: read every byte and keep check sums; else only headers are read.

    Raises:
        DataError, UsageError: there are no shards, or an index is there already that is not known to be theirs.
        CorruptDataError: a shard is damaged.
    """
    began = time.monotonic()
    source = source.rstrip("/") if "://" in source else os.path.abspath(source)
    target = (to.rstrip("/") if "://" in to else os.path.abspath(to)) if to else source
    shards = [stored for stored in _listed(source) if stored.name.endswith(TAR) and "/" not in stored.name]
    if not shards:
        raise DataError("there are no shards", given=source, allowed="a folder, or an address, that holds tar files")
    place = open_place(target)
    if INDEX_NAME in place.sizes() and not work_folder(target).exists():
        return _indexed_already(source, target, shards, crc)
    about = {"target": "index", "crc": crc, "fingerprint": _fingerprint(shards)}
    with writing_to(target):
        indexed = _index(source, target, place, shards, about, name, workers, crc, tell)
    indexed.packed.seconds = time.monotonic() - began
    return indexed


def _indexed_already(source: str, target: str, shards: list[Stored], crc: bool) -> Indexed:
    """Return what an index holds that is there, where its shards are those and were not written since."""
    address = f"{target}/{INDEX_NAME}"
    index = open_index_at(address)
    known = {shard.name: shard.bytes for shard in index.shards}
    if index.root != source or known != {stored.name: stored.bytes for stored in shards}:
        raise UsageError("there is an index of other shards already", given=address, next="remove it first")
    made_s = None if "://" in source + target else os.stat(address).st_mtime
    if made_s is None or any(os.stat(index.shard_path(number)).st_mtime > made_s for number in range(len(shards))):
        text = "there is an index already, and the shards may have changed since"
        raise UsageError(text, given=address, next="`cordee data verify` compares them; remove it to make it anew")
    if crc and "crc32" not in index.columns:
        raise UsageError("there is an index without check sums already", given=address, next="remove it first")
    packed = PackResult(
        path=source,
        index=address,
        shards=len(shards),
        samples=index.samples,
        bytes=index.bytes,
        seconds=0.0,
        resumed_shards=len(shards),
        id=index.id,
        already=True,
        packed_s=made_s,
    )
    return Indexed(packed)


def _index(
    source: str,
    target: str,
    place: PackTarget,
    shards: list[Stored],
    about: dict[str, Any],
    name: str,
    workers: int,
    crc: bool,
    tell: Tell | None,
) -> Indexed:
    state = PackState(work_folder(target), about, restart=False)
    try:
        sizes = {stored.name: stored.bytes for stored in shards}
        todo = [number for number in range(len(shards)) if not state.whole(number, sizes)]
        work = _Indexing(source, shards, state, crc)
        threads = "://" in source
        run_all(todo, work.work, workers, threads, tell or (lambda samples, size: None))
        indexed = _merged(state, len(shards), target, source, place, name or source.rpartition("/")[2])
        state.remove()
    finally:
        state.close()
    indexed.packed.resumed_shards = len(shards) - len(todo)
    return indexed


def _listed(source: str) -> list[Stored]:
    store = open_store(source)
    if "://" in source:
        return list(store.list())
    names = sorted(os.listdir(source)) if os.path.isdir(source) else []
    return [stored for stored in map(store.look, names) if stored is not None]


def _fingerprint(shards: list[Stored]) -> str:
    found = hashlib.sha256()
    for stored in shards:
        found.update(f"{stored.name}\0{stored.bytes}\0{stored.version}\n".encode("utf-8", "surrogateescape"))
    return found.hexdigest()


class _Indexing:
    def __init__(self, source: str, shards: list[Stored], state: PackState, crc: bool) -> None:
        self._source = source
        self._shards, self._state, self._crc = shards, state, crc

    def work(self, jobs: Jobs, add: Tell) -> None:
        """Index shards until none is left."""
        while (number := jobs.take()) is not None:
            stored = self._shards[number]
            try:
                walk = _Walk(f"{self._source}/{stored.name}", self._crc)
                columns, fields = walk.columns()
            except Damaged as fault:
                raise corrupt(walk.path, fault) from None
            self._state.note_left_out(number, walk.left_out)
            write_index(
                self._state.part(number),
                name=stored.name,
                fields=fields,
                classes=(),
                shards=[Shard(stored.name, stored.bytes, columns.samples)],
                columns=columns.arrays(fields, self._crc),
            )
            add(columns.samples, stored.bytes)


class _Walk:
    """Goes through one shard and groups its members into samples, as WebDataset does: neighbours with the same key."""

    def __init__(self, path: str, crc: bool) -> None:
        self.left_out: list[str] = []
        self.path, self._crc = path, crc
        self._found = ShardColumns()
        self._fields: dict[str, int] = {}
        self._key: bytes | None = None
        self._in_sample: set[str] = set()
        self._label: int | None = None

    def columns(self) -> tuple[ShardColumns, list[str]]:
        """Return what the shard holds and the names of the fields.

        Raises:
            Damaged: it is no whole tar file. DataError: it cannot be read. CorruptDataError: a field occurs twice.
        """
        shard = open_shard(self.path)
        try:
            for member in members(shard.read, shard.size):
                self._add(shard, member)
        finally:
            shard.close()
        self._end_sample()
        return self._found, list(self._fields)

    def _add(self, shard: ShardFile, member: TarMember) -> None:
        match = _NAME.fullmatch(member.name)
        if member.kind != "file" or match is None:
            if member.kind != "folder":
                why = "stored with holes (GNU sparse)" if member.kind == "sparse" else "no KEY.field"
                self.left_out.append(f"{os.path.basename(self.path)}: {_text(member.name)}: {why}")
            return
        key, field_name = match[1], match[2].decode("utf-8", "surrogateescape").lower()
        if key != self._key:
            self._end_sample()
            self._key = key
        if field_name in self._in_sample:
            raise CorruptDataError(
                "a sample has the same field twice, and no reader of WebDataset takes it",
                given=f"{self.path}: {_text(member.name)} at byte {member.start}",
                next="pack the shards anew from where their files came from",
            )
        self._in_sample.add(field_name)
        if field_name == "cls":
            self._label = _number(shard.read(min(member.length, 32), member.offset))
        if member.is_label:
            return
        number = self._fields.setdefault(field_name, len(self._fields))
        crc = field_crc(shard, member.offset, member.length) if self._crc else 0
        self._found.field(number, member.offset, member.length, crc)

    def _end_sample(self) -> None:
        if self._key is not None:
            self._found.sample(self._key, self._label)
        self._key, self._label = None, None
        self._in_sample.clear()


def _number(text: bytes) -> int | None:
    text = text.strip()
    return int(text) if len(text) < 19 and text.lstrip(b"-").isdigit() else None


def _merged(state: PackState, shards: int, target: str, source: str, place: PackTarget, name: str) -> Indexed:
    parts = [part for part in map(state.open_part, range(shards)) if part is not None]
    if len(parts) < shards:
        raise CorruptDataError("the index of a shard is damaged", given=str(state.folder), next="repeat the command")
    root = "." if target == source else source
    merged = str(state.folder / INDEX_NAME)
    identity = write_merged(merged, parts, name, (), root)
    place.take(merged, INDEX_NAME)
    left_out = [text for number in range(shards) for text in state.left_out(number)]
    duplicates = _duplicates(parts)
    packed = PackResult(
        path=source,
        index=f"{target}/{INDEX_NAME}",
        shards=shards,
        samples=sum(part.samples for part in parts),
        bytes=sum(part.bytes for part in parts),
        seconds=0.0,
        left_out={"no sample of WebDataset": left_out} if left_out else {},
        id=identity,
    )
    return Indexed(packed, len(duplicates), duplicates[:_FEW])


def _duplicates(parts: list[ShardIndex]) -> list[str]:
    seen: set[bytes] = set()
    twice: dict[bytes, None] = {}
    for part in parts:
        text, begin = part.columns["keys"].tobytes(), 0
        for end in part.columns["key_end"].tolist():
            key = text[begin:end]
            begin = end
            if key in seen:
                twice[key] = None
            seen.add(key)
    return [_text(key) for key in twice]


def _text(name: bytes) -> str:
    return name.decode("utf-8", "backslashreplace")
