"""Samples straight from a folder of files: for scripts that run before anything is packed."""

from __future__ import annotations

import errno
import hashlib
import os
import threading
import time
import warnings
from typing import TYPE_CHECKING, Any, Optional, Sequence, Union

from cordee.data.read._base import Sample, Source, Unread
from cordee.data.read.counting import Counts
from cordee.errors import DataError, UsageError

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, Any]

Path = Union[str, "os.PathLike[str]"]
# From so many files on, opening each of them in every epoch is worth a word.
MANY_FILES = 10_000
_SPLITS = {"train", "training", "val", "valid", "validation", "eval", "test", "testing", "dev"}
_MEDIA = set(
    b"jpg jpeg png webp bmp gif tif tiff ppm pgm jxl avif wav flac mp3 ogg opus m4a mp4 avi mkv webm mov npy npz pt".split()
)
_MOSTLY = 0.9
# A file, before the first was read.
_SUPPOSED_BYTES = 64 << 10


class FolderSource(Source):
    """The files below a folder: those of one folder whose names are equal up to the first dot are one sample.

    In the order of their names; where nearly all are pictures, sound, films or arrays below at least two first folders that
    are no splits such as train and val, these are the classes, and `label` the number of a sample's class, in their order.
    Hidden files and links to folders are passed over.

    Args:
        path: the folder.
        fields: which fields (what follows the first dot, in lower case; `bin` without one) to read; None: all.
        keys: give each sample its `key`.
        check, corrupt: taken and without effect: nothing says what the bytes should be.

    Raises:
        DataError: it cannot be listed, or holds no file.
    """

    in_parts = True

    def __init__(
        self,
        path: Path,
        fields: Optional[Sequence[str]] = None,
        *,
        keys: bool = False,
        check: str = "decode",
        corrupt: str = "raise",
    ) -> None:
        self.root = os.path.abspath(os.fspath(path))
        self.name = os.path.basename(self.root)
        self.keys = keys
        self.counts, self._counting = Counts(), threading.Lock()
        names = _files(self.root)
        self._samples = _grouped(names)
        self.size = len(self._samples)
        known = sorted({field for _, found in self._samples for field in found})
        self._fields = None if fields is None else set(fields)
        if self._fields is not None and not self._fields <= set(known):
            raise UsageError(
                "fields are named that no file has",
                given=", ".join(sorted(self._fields - set(known))),
                allowed=", ".join(known),
                next="name some of these as fields=",
            )
        self.classes = tuple(_classes(names))
        self._label = {name: number for number, name in enumerate(self.classes)}
        self.identity = hashlib.sha256(b"\0".join(map(os.fsencode, names))).hexdigest()[:16]
        if len(names) >= MANY_FILES:
            warnings.warn(
                f"{len(names)} files are opened one by one in every epoch: `cordee data pack {self.root} --to FOLDER` "
                "makes a few large ones of them, which are read many times as fast",
                stacklevel=3,
            )

    def read(self, samples: "Array") -> list[Sample]:
        """Return samples in the order asked for."""
        import numpy

        found = self.samples(numpy.asarray(samples, numpy.int64).reshape(-1).tolist())
        self.counts.samples += len(found)
        return found

    def unread(self, samples: "Array") -> Unread:
        """Return samples whose files the threads that decode open."""
        self.counts.samples += len(samples)
        with self._counting:
            mean_bytes = self.counts.bytes // max(1, self.counts.requests) or _SUPPOSED_BYTES
        return _Unread(self, samples.tolist(), mean_bytes * len(samples))

    def samples(self, numbers: list[int]) -> list[Sample]:
        """Return samples by number; safe in several threads."""
        found = []
        for number in numbers:
            key, fields = self._samples[number]
            sample: Sample = {"key": key} if self.keys else {}
            for field, name in fields.items():
                if self._fields is None or field in self._fields:
                    sample[field] = self._bytes(name)
            label = self._label.get(key.partition("/")[0])
            if label is not None:
                sample["label"] = label
            found.append(sample)
        return found

    def describe(self, sample: int) -> str:
        """Return a sample's key and folder."""
        return f"{self._samples[sample][0]!r} in {self.root}"

    def _bytes(self, name: str) -> bytes:
        path = os.path.join(self.root, name)
        started = time.perf_counter()
        try:
            with open(path, "rb", buffering=0) as file:
                data = file.read()
        except OSError as error:
            raise DataError(
                f"a file of the data set cannot be read: {error.strerror} ({errno.errorcode.get(error.errno or 0)})",
                given=path,
                next="put it back, or begin anew without it; a packed data set does not change under a training",
            ) from None
        with self._counting:
            self.counts.opens += 1
            self.counts.request(len(data), time.perf_counter() - started)
        return data

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_counting"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._counting = threading.Lock()


class _Unread(Unread):
    """Samples whose files are yet to be opened."""

    def __init__(self, source: FolderSource, numbers: list[int], about_bytes: int) -> None:
        self._source, self._numbers, self.bytes = source, numbers, about_bytes

    def read(self, begin: int, end: int) -> list[Sample]:
        return self._source.samples(self._numbers[begin:end])


def _files(root: str) -> list[str]:
    """Return the paths of all files below a folder, sorted by folder, then by name."""
    found, waiting = [], [""]
    while waiting:
        below = waiting.pop()
        try:
            with os.scandir(os.path.join(root, below)) as entries:
                for entry in entries:
                    name = below + entry.name
                    if entry.name.startswith("."):
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(name + "/")
                    elif entry.is_file():
                        found.append(name)
        except OSError as error:
            raise DataError(
                f"a folder of the data set cannot be listed: {error.strerror}",
                given=os.path.join(root, below),
                next="ask for the right to read it",
            ) from None
    if not found:
        raise DataError("the folder holds no files", given=root, next="look whether the path is right")
    return sorted(found, key=lambda name: (os.fsencode(name[: name.rfind("/") + 1]), os.fsencode(name)))


def _grouped(names: list[str]) -> list[tuple[str, dict[str, str]]]:
    """Return (key, {field: name}) of each sample."""
    found: dict[str, dict[str, str]] = {}
    for name in names:
        folder, base = name[: name.rfind("/") + 1], name[name.rfind("/") + 1 :]
        stem, _, field = base.partition(".")
        found.setdefault(folder + stem, {})[field.lower() or "bin"] = name
    return list(found.items())


def _classes(names: list[str]) -> list[str]:
    """Return the first folders where they are classes, by the rule of `cordee data pack`."""
    endings = (os.fsencode(name.rpartition(".")[2].lower()) for name in names)
    media = [name.partition("/")[0] for name, ending in zip(names, endings) if "/" in name and ending in _MEDIA]
    folders = sorted(set(media), key=os.fsencode)
    if len(folders) < 2 or len(media) < _MOSTLY * len(names) or {name.lower() for name in folders} <= _SPLITS:
        return []
    return folders
