"""Files that each hold many samples: told by their names and first bytes, so that none is taken for one sample by chance."""

from __future__ import annotations

import os
import re
import zlib
from typing import Dict, Iterable, List, NamedTuple, Optional, Sequence

from cordee.systems.data.node.shards.entries import PackedEntry

PARQUET, ARROW, TFRECORD = "Parquet", "Arrow", "TFRecord"
TAR, COMPRESSED_TAR, ZIP, GZIP_TFRECORD = "tar", "compressed tar", "zip", "gzip TFRecord"
# Kinds whose rows or records packing can take for samples.
ROWS = (PARQUET, ARROW, TFRECORD)
_BY_ENDING: Dict[bytes, str] = {
    b".parquet": PARQUET,
    b".arrow": ARROW,
    b".feather": ARROW,
    b".tar": TAR,
    b".tar.gz": COMPRESSED_TAR,
    b".tgz": COMPRESSED_TAR,
    b".tar.bz2": COMPRESSED_TAR,
    b".tar.xz": COMPRESSED_TAR,
    b".tar.zst": COMPRESSED_TAR,
    b".zip": ZIP,
}
_ENDINGS = tuple(_BY_ENDING)
# `x.tfrecord`, `x.tfrecord-00000-of-00002`, and TensorFlow Datasets' `train-00000-of-01024`, which only its bytes tell.
_RECORDS = re.compile(rb"\.tfrecords?(?:\.gz|-\d+-of-\d+(?:\.gz)?)?$")
_PART = re.compile(rb"-\d+-of-\d+(?:\.gz)?$")
_SPLIT = re.compile(r"(?:^|[/_.-])(train|training|val|valid|validation|dev|test|testing|eval)(?=[/_.-])", re.IGNORECASE)
# What stands beside tables and records and says something about them.
_ABOUT = re.compile(
    rb"readme.*|licen[cs]e.*|citation.*|.*\.md|dataset_infos?\.json|dataset_dict\.json|state\.json|features\.json|"
    rb"_success|_(?:common_)?metadata|.*\.crc|.*\.idx|(?:md5|sha\d+)(?:sums?)?(?:\.txt)?|.*\.(?:md5|sha256)|"
    rb"dataset\.index|names\.json|packed\.json|left-out\.json",
    re.IGNORECASE,
)
_FEW = 3


class ContainerFiles(NamedTuple):
    """What entries are: files that hold many samples, by their kind; what only tells about these; and all others.

    `few`: they are less than half of the files, and of the bytes where these are known: single ones among other samples.
    """

    kinds: Dict[str, List[bytes]]
    about: List[bytes]
    others: List[bytes]
    few: bool

    def text(self, others: bool = True) -> str:
        """Return how many there are of what kind, for people."""
        parts = []
        for kind, names in self.kinds.items():
            shown = ", ".join(name.decode("utf-8", "backslashreplace") for name in names[:_FEW])
            more = ", ..." if len(names) > _FEW else ""
            parts.append(f"{len(names)} {kind} {'file' if len(names) == 1 else 'files'} ({shown}{more})")
        if others and self.others:
            shown = self.others[0].decode("utf-8", "backslashreplace")
            parts.append(f"{len(self.others)} other {'file' if len(self.others) == 1 else 'files'} ({shown}...)")
        return "; ".join(parts)


def held(entries: Iterable[PackedEntry], root: Optional[bytes]) -> Optional[ContainerFiles]:
    """Return what the entries of a folder are; None where none of them holds many samples.

    Args:
        root: the folder on a file system in which they lie, where files may be looked into.
    """
    kinds: Dict[str, List[bytes]] = {}
    others: List[bytes] = []
    held_bytes = all_bytes = 0
    for entry in entries:
        kind = kind_of(entry.name, root)
        all_bytes += entry.length
        if kind is None:
            others.append(entry.name)
        else:
            held_bytes += entry.length
            kinds.setdefault(kind, []).append(entry.name)
    if not kinds:
        return None
    about = {name for name in others if _is_about(name)}
    data = sorted(name for name in others if name not in about)
    few = sum(map(len, kinds.values())) < len(data) and 2 * held_bytes <= all_bytes
    return ContainerFiles({kind: sorted(names) for kind, names in sorted(kinds.items())}, sorted(about), data, few)


def kind_of(name: bytes, root: Optional[bytes]) -> Optional[str]:
    """Return which kind of file with many samples this is; None: it is none that is known."""
    lower = name[name.rfind(b"/") + 1 :].lower()
    if lower.endswith(_ENDINGS):
        return _BY_ENDING[max((ending for ending in _ENDINGS if lower.endswith(ending)), key=len)]
    if not (b"tfrecord" in lower or b"-of-" in lower):
        return None
    named = bool(_RECORDS.search(lower))
    if not (named or _PART.search(lower)):
        return None
    if root is None:
        return (GZIP_TFRECORD if lower.endswith(b".gz") else TFRECORD) if named else None
    found = _records_of(root + b"/" + name)
    return TFRECORD if found is None and named else found


def splits_among(names: Iterable[bytes]) -> List[str]:
    """Return the splits that the names of files are of: train, test, ..."""
    found = {match[1].lower() for name in names for match in [_SPLIT.search(os.fsdecode(name))] if match}
    return sorted(found)


def _is_about(name: bytes) -> bool:
    return any(part.startswith(b".") for part in name.split(b"/")) or bool(
        _ABOUT.fullmatch(name[name.rfind(b"/") + 1 :])
    )


def _records_of(path: bytes) -> Optional[str]:
    """Return whether a file begins as one of records does: a length and its masked CRC-32C."""
    head = _begin(path, 512)
    if head[:2] == b"\x1f\x8b":
        try:
            return GZIP_TFRECORD if _is_record(zlib.decompressobj(31).decompress(head, 12)) else None
        except zlib.error:
            return None
    return TFRECORD if _is_record(head) else None


def _begin(path: bytes, length: int) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            return os.read(descriptor, length)
        finally:
            os.close(descriptor)
    except OSError:
        return b""


def _is_record(head: bytes) -> bool:
    crc = 0xFFFFFFFF
    for byte in head[:8]:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    return len(head) >= 12 and masked.to_bytes(4, "little") == head[8:12]


_NEXT = {
    PARQUET: "`cordee data pack FOLDER --include '*.parquet'` packs their rows, `--exclude '*.parquet'` the other files",
    ARROW: "`cordee data pack FOLDER --include '*.arrow'` packs their rows, `--exclude '*.arrow'` the other files",
    TFRECORD: "`cordee data pack FOLDER --include PATTERN` packs their records, `--exclude PATTERN` the other files",
    TAR: "`cordee data pack FOLDER --index-only` makes the index of shards, which stay as they are",
    COMPRESSED_TAR: "decompress shards and index them: `cordee data pack FOLDER --index-only`; "
    "or pack one archive by itself: `cordee data pack FILE`",
    ZIP: "unzip them, or pack one by itself: `cordee data pack FILE`",
    GZIP_TFRECORD: "decompress them first: gunzip",
}


def advice(found: ContainerFiles, folder: str) -> str:
    """Return what to do with the kind of which there are most files."""
    kind = max(found.kinds, key=lambda one: len(found.kinds[one]))
    text = _NEXT[kind].replace("FOLDER", folder)
    if kind in (TAR, COMPRESSED_TAR, ZIP):
        ending = os.fsdecode(found.kinds[kind][0]).rpartition(".")[2]
        text += f". Where each of them is one sample, name them: --include '*.{ending}'"
    return text


def as_they_are(found: ContainerFiles, include: Sequence[str]) -> str:
    """Return what is said where each of these files is taken as one sample: few among others, or named; empty: they are not."""
    if not (found.few or (include and not set(found.kinds) & set(ROWS))):
        return ""
    return f"each of these files is taken as one sample, whatever it holds: {found.text(others=False)}"
