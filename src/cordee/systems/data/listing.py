"""A bounded look at a data set before a job: its kind, and its size where that is cheap. The whole is `cordee data survey`."""

from __future__ import annotations

import os
import stat
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from cordee.core.errors import CorruptDataError
from cordee.machine.foreign_files import regular
from cordee.systems.data.node.shards.index import INDEX_NAME, MAGIC, read_header

MOST_ENTRIES = 4000
_MOST_SIZED = 400
_SUFFIXES = {
    ".tar": "shards",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".h5": "hdf5",
    ".hdf5": "hdf5",
    ".tfrecord": "tfrecord",
    ".tfrecords": "tfrecord",
    ".npz": "npz",
    ".npy": "npy",
    ".idx": "tokens",
}
_ARCHIVES = (".zip", ".tgz", ".tar.gz", ".tar.zst", ".tar.xz", ".tar.bz2", ".tbz2", ".txz")
_IMAGES = (".squashfs", ".sqsh", ".sqfs")
_ZARR = frozenset([".zarray", ".zgroup", "zarr.json"])
# Names in a data set that are no data.
_BESIDE = (".json", ".md", ".txt", ".csv", ".bin", ".index", ".partial")


@dataclass(frozen=True)
class DataLook:
    """What was seen of a data set.

    Attributes:
        kind: `packed`, `shards` (tar, without an index), `tokens`, `archive`, `parquet`, `hdf5`, `zarr`, `files`, `empty`,
            `object store` (not looked into), `nothing` (in a store), ...
        whole: whether `files` and `bytes` are all there are; else they are those that were looked at.
        sized: files whose size is in `bytes`.
        unused_since: UTC epoch seconds at which the file that was left alone longest was last read or written.
        elsewhere: where the shards of an index lie, if not beside it.
        fault: why it cannot be used.
    """

    kind: str
    files: int | None = None
    bytes: int | None = None
    sized: int = 0
    whole: bool = True
    samples: int | None = None
    identity: str | None = None
    unused_since: float | None = None
    elsewhere: str | None = None
    fault: str = ""

    @property
    def mean_bytes(self) -> float | None:
        """Mean size of the files that were looked at."""
        return self.bytes / self.sized if self.bytes is not None and self.sized else None


@dataclass
class SeenFiles:
    """Names and sizes of the files that were looked at."""

    files: int = 0
    sized: int = 0
    bytes: int = 0
    whole: bool = True
    unused_since: float | None = None
    suffixes: Counter[str] = field(default_factory=Counter)
    names: set[str] = field(default_factory=set)

    def add(self, name: str) -> None:
        """Count a file by its name."""
        self.files += 1
        self.names.add(name)
        self.suffixes[os.path.splitext(name.lower())[1]] += 1

    def size(self, entry: os.stat_result) -> None:
        """Add a file's size, and when it was used."""
        used = max(entry.st_mtime, entry.st_atime)
        self.sized += 1
        self.bytes += entry.st_size
        self.unused_since = used if self.unused_since is None else min(used, self.unused_since)


def look(place: str, most: int = MOST_ENTRIES) -> DataLook:
    """Return what lies at a place, after looking at no more than `most` names; an address is not asked.

    What cannot be read is said in `fault`, never raised.
    """
    if "://" in place:
        return DataLook("object store", whole=False)
    try:
        if os.path.isdir(place):
            return _folder(place, most)
        if not os.path.exists(place) and os.path.exists(f"{place}.idx"):
            return _files([f"{place}.idx", f"{place}.bin"], "tokens")
        return _file(place)
    except OSError as error:
        return DataLook("unknown", whole=False, fault=f"it cannot be read: {error.strerror}")


def _file(path: str) -> DataLook:
    if not stat.S_ISREG(os.stat(path).st_mode):
        return DataLook("unknown", whole=False, fault="it is neither a file nor a folder")
    with open(path, "rb", opener=regular) as file:
        begin = file.read(len(MAGIC))
    if begin == MAGIC:
        return _packed(path)
    return _files([path], kind_of_file(path))


def kind_of_file(path: str) -> str:
    """Return the kind of one file, by its name."""
    name = path.lower()
    if name.endswith(_ARCHIVES) or name.endswith(".tar"):
        return "archive"
    if name.endswith(_IMAGES):
        return "squashfs"
    return _SUFFIXES.get(os.path.splitext(name)[1], "file")


def _folder(path: str, most: int) -> DataLook:
    index = os.path.join(path, INDEX_NAME)
    if os.path.isfile(index):
        return _packed(index)
    seen = SeenFiles()
    for entry in _entries(path, most, seen):
        seen.add(entry.name)
        if seen.sized < _MOST_SIZED:
            seen.size(entry.stat(follow_symlinks=False))
    return DataLook(
        kind_of(path, seen),
        files=seen.files,
        bytes=seen.bytes,
        sized=seen.sized,
        whole=seen.whole and seen.sized == seen.files,
        unused_since=seen.unused_since,
    )


def _entries(path: str, most: int, seen: SeenFiles) -> Iterator[os.DirEntry[str]]:
    """Yield files, the upper folders first; a folder that cannot be read is left out, and then the look is not whole."""
    folders, names = deque([path]), 0
    while folders:
        folder = folders.popleft()
        try:
            scan = os.scandir(folder)
        except OSError:
            if folder == path:
                raise
            seen.whole = False
            continue
        with scan as entries:
            for entry in entries:
                names += 1
                if names > most:
                    seen.whole = False
                    return
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                else:
                    yield entry


def kind_of(path: str, seen: SeenFiles) -> str:
    """Return the kind of a folder, by the names in it."""
    if path.rstrip("/").endswith(".zarr") or _ZARR & seen.names:
        return "zarr"
    data = Counter({end: count for end, count in seen.suffixes.items() if end not in _BESIDE})
    if not seen.files:
        return "empty"
    if not data:
        return "files"
    suffix, count = data.most_common(1)[0]
    return _SUFFIXES.get(suffix, "files") if 2 * count > data.total() else "files"


def _packed(index: str) -> DataLook:
    """Return what the index says; its own age stands for that of the shards."""
    folder = os.path.dirname(os.path.abspath(index))
    try:
        header = read_header(index)
    except CorruptDataError as error:
        return DataLook("packed", whole=False, fault=error.text)
    root = str(header["root"])
    place = root if "://" in root else os.path.normpath(os.path.join(folder, root))
    shards, fault, age = header["shards"], "", os.stat(index)
    unused_since = max(age.st_mtime, age.st_atime)
    for shard in shards[:_MOST_SIZED] if "://" not in place else ():
        try:
            found = os.stat(os.path.join(place, shard["name"]))
        except OSError as error:
            fault = f"its shard {shard['name']} cannot be read: {error.strerror}"
            break
        if found.st_size != shard["bytes"]:
            fault = f"its shard {shard['name']} has {found.st_size} bytes, the index says {shard['bytes']}"
            break
        unused_since = min(unused_since, max(found.st_mtime, found.st_atime))
    return DataLook(
        "packed",
        files=len(shards) + 1,
        bytes=header["bytes"],
        sized=len(shards),
        samples=header["samples"],
        identity=header["id"],
        unused_since=unused_since,
        elsewhere=None if place == folder else place,
        fault=fault,
    )


def _files(paths: list[str], kind: str) -> DataLook:
    found = [os.stat(path) for path in paths]
    used = min(max(one.st_mtime, one.st_atime) for one in found)
    return DataLook(kind, len(found), sum(one.st_size for one in found), len(found), unused_since=used)
