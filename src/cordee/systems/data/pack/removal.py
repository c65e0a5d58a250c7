"""`cordee data remove`: a packed data set without some of its samples, and a record of what was left out and why."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path

from cordee.core.errors import DataError, UsageError
from cordee.runs.folder import write_atomically
from cordee.systems.data.node.shards.entries import Listing, PackedEntry, Sample
from cordee.systems.data.node.shards.index import INDEX_NAME, NO_LABEL, ShardIndex
from cordee.systems.data.node.shards.members import Damaged, corrupt, members
from cordee.systems.data.pack._base import PackOptions, PackPlan, PackResult, SampleOrigin, Tell
from cordee.systems.data.pack.build import pack
from cordee.systems.data.pack.shards.file import TAR, open_shard
from cordee.systems.data.pack.shards.indexes import open_index_at

SCHEMA = "cordee.removed/1"
RECORD = "removed.json"
_MOST_KEYS_BYTES = 4 << 30


@dataclass(frozen=True)
class Removed:
    """A data set that was written without some samples.

    Attributes:
        packed: what was written.
        removed: keys of the samples that were left out, with the reason, in the order of the keys.
        not_found: keys that no sample has.
    """

    packed: PackResult
    removed: dict[str, str]
    not_found: list[str]


def read_keys(path: Path, reason: str) -> dict[str, str]:
    """Return keys with their reasons: `KEY` or `KEY<tab>REASON` a line, or JSON objects with `key` and `reason` (.jsonl).

    Args:
        reason: where the file gives none.

    Raises:
        UsageError: it cannot be read, or has no keys.
    """
    try:
        if path.stat().st_size > _MOST_KEYS_BYTES:
            raise UsageError("the list of keys is too large", given=str(path))
        text = path.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError as error:
        raise UsageError(f"the list of keys cannot be read: {error.strerror}", given=str(path)) from None
    found: dict[str, str] = {}
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        if path.suffix == ".jsonl":
            try:
                told = json.loads(line)
                key, why = str(told["key"]), str(told.get("reason", ""))
            except (ValueError, KeyError, TypeError, AttributeError):
                wanted = '{"key": "...", "reason": "..."}'
                raise UsageError("a line holds no key", given=f"{path}:{number}", allowed=wanted) from None
        else:
            key, _, why = line.removesuffix("\r").partition("\t")
        found[key] = why or reason
    if not found:
        raise UsageError(
            "the list has no keys", given=str(path), allowed="one a line, as `cordee data verify` names them"
        )
    return found


def remove(source: str, keys: dict[str, str], to: str, *, workers: int = 1, tell: Tell | None = None) -> Removed:
    """Write a packed data set without the samples of these keys; the same set and keys give the same bytes.

    The source stays as it is. Each sample that is kept is compared with the source's check sum.

    Raises:
        UsageError: the source is no set of tar shards, no sample has one of the keys, or all have; `to` holds something else.
        DataError, CorruptDataError: the source is damaged, or the disk refuses.
    """
    index = open_index_at(source)
    if "://" in index.root or any(not shard.name.endswith(TAR) for shard in index.shards):
        raise UsageError(
            "samples are removed from sets of tar shards on a file system",
            given=source,
            next="pack what it was made of again, with --exclude, or copy it here",
        )
    if "://" not in to and os.path.realpath(to) == os.path.realpath(index.root):
        raise UsageError("a data set is not changed in place", given=to, next="choose another folder with --to")
    gone = {key: at for at in range(index.samples) if (key := index.key(at)) in keys}
    if not gone:
        raise UsageError("no sample has one of these keys", given=source, allowed=f"keys such as {index.key(0)!r}")
    if len(gone) == index.samples:
        raise UsageError("nothing would be left", given=source, next="delete the data set")
    kept = [at for at in range(index.samples) if index.key(at) not in gone]
    origin = _Kept(index, kept, keys)
    listing = origin.listing()
    plan = PackPlan(origin, listing, listing.samples or [], index.classes)
    largest = max(shard.bytes for shard in index.shards)
    packed = pack(plan, to, PackOptions(shard_bytes=largest, workers=workers, name=index.name), tell=tell)
    _compare(index, kept, open_index_at(to))
    removed = {key: keys[key] for key in sorted(gone)}
    record = {
        "schema": SCHEMA,
        "from": {"name": index.name, "id": index.id, "samples": index.samples},
        "to": {"id": packed.id, "samples": len(kept)},
        "removed": removed,
        "not_found": sorted(keys.keys() - gone.keys()),
    }
    write_atomically(Path(to) / RECORD, json.dumps(record, indent=1, sort_keys=True) + "\n", 0o644)
    return Removed(packed, removed, sorted(keys.keys() - gone.keys()))


class _Kept(SampleOrigin):
    """The samples of a packed set that stay, each at its place in its shard."""

    def __init__(self, index: ShardIndex, kept: list[int], keys: dict[str, str]) -> None:
        self.name = index.name
        self._index, self._kept = index, kept
        digest = hashlib.sha256(index.id.encode())
        for at in kept:
            digest.update(index.key(at).encode("utf-8", "surrogateescape") + b"\0")
        self._fingerprint = digest.hexdigest()

    def listing(self) -> Listing:
        columns, index = self._index.columns, self._index
        names = [self._names(number) for number in range(len(index.shards))]
        samples = []
        for at in self._kept:
            shard, key = int(columns["shard"][at]), index.key(at)
            path = os.fsencode(index.shard_path(shard))
            fields, entries, renamed = [], [], False
            for number, field in enumerate(index.fields):
                length = int(columns["length"][at, number])
                if length < 0:
                    continue
                offset = int(columns["offset"][at, number])
                name, is_other = names[shard].get((offset, field), (os.fsencode(f"{key}.{field}"), False))
                renamed = renamed or is_other
                fields.append(field)
                entries.append(PackedEntry(name, length, path, offset))
            label = int(columns["label"][at]) if "label" in columns else NO_LABEL
            of_class = None if label == NO_LABEL else label
            samples.append(Sample(os.fsencode(key), of_class, tuple(fields), tuple(entries), renamed))
        return Listing(samples=samples, classes=index.classes, fingerprint=self._fingerprint)

    def _names(self, number: int) -> dict[tuple[int, str], tuple[bytes, bool]]:
        """Return the names that files had before they were packed by their place in a shard and their field, and whether the shard has others.

        What has no bytes begins where the next file does, so that the place alone does not tell them apart.
        """
        shard, fields = open_shard(self._index.shard_path(number)), self._index.fields
        found: dict[tuple[int, str], tuple[bytes, bool]] = {}
        try:
            for one in members(shard.read, shard.size):
                name = os.path.basename(one.name).lower().decode("utf-8", "surrogateescape")
                field = name.partition(".")[2]
                if one.kind == "file" and field in fields:
                    found[one.offset, field] = one.original or one.name, one.original is not None
        except Damaged as fault:
            raise corrupt(shard.path, fault) from None
        finally:
            shard.close()
        return found


def _compare(before: ShardIndex, kept: list[int], after: ShardIndex) -> None:
    """Look whether what was written is what was there: each key, and the check sums of its fields.

    Raises:
        DataError: it is not; the source was damaged, or changed meanwhile.
    """
    fields = [before.fields.index(field) for field in after.fields]
    checked = "crc32" in before.columns and "crc32" in after.columns
    for at, source in enumerate(kept):
        same = after.key(at) == before.key(source)
        there = before.columns["length"][source, fields] >= 0
        same = same and bool((before.columns["length"][source, fields] == after.columns["length"][at]).all())
        if same and checked:
            old, new = before.columns["crc32"][source, fields], after.columns["crc32"][at]
            same = bool((old[there] == new[there]).all())
        if not same:
            raise DataError(
                f"the sample {before.key(source)!r} was not copied as it is",
                given=f"{before.root}/{INDEX_NAME}",
                next="`cordee data verify` says what is damaged; delete what was written",
            )
