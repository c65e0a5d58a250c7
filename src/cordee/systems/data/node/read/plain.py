"""Samples straight from a folder of files: for scripts that run before anything is packed."""

from __future__ import annotations

import errno
import hashlib
import os
import threading
import time
import warnings
from typing import TYPE_CHECKING, Any, List, Optional, Sequence, Tuple, Union

from cordee.core.errors import DataError, UsageError
from cordee.machine.foreign_files import regular
from cordee.systems.data.node.read._base import Sample, SampleSource, Unread
from cordee.systems.data.node.read.counters import ReadCounts
from cordee.systems.data.node.shards.containers import advice, as_they_are, held
from cordee.systems.data.node.shards.entries import Listing
from cordee.systems.data.node.shards.folder import LINK, UNREADABLE, list_folder
from cordee.systems.data.node.shards.groups import Grouped, choose, grouped, leave_out_litter

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, Any]

Path = Union[str, "os.PathLike[str]"]
# From so many files on, opening each of them in every epoch is worth a word.
MANY_FILES = 10_000
_FEW = 5
# A file, before the first was read.
_SUPPOSED_BYTES = 64 << 10


class PlainFolder(SampleSource):
    """The files below a folder as the samples, classes and order that packing it gives: one rule names both.

    What is left out (links, what macOS and Windows put there) is counted in a warning.

    Args:
        path: the folder.
        fields: which fields (what follows the first dot, in lower case; `bin` without one) to read; None: all.
        keys: give each sample its `key`.
        follow: read what symbolic links point to.
        include, exclude: patterns of names (`*.jpg`, `train/*`) to take alone, and to leave out.
        check, corrupt: taken and without effect: nothing says what the bytes should be.

    Raises:
        DataError: it cannot be listed, holds no file, or files that each hold many samples.
        UsageError: no file has a field that is named.
    """

    in_parts = True

    def __init__(
        self,
        path: Path,
        fields: Optional[Sequence[str]] = None,
        *,
        keys: bool = False,
        follow: bool = False,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        check: str = "decode",
        corrupt: str = "raise",
    ) -> None:
        self.root = os.path.abspath(os.fspath(path))
        self.name = os.path.basename(self.root)
        self.keys = keys
        self.counts, self._counting = ReadCounts(), threading.Lock()
        listing, notes = _listed(self.root, follow, tuple(include), tuple(exclude))
        found = grouped(listing)
        self._samples = found.samples
        self.size = len(self._samples)
        known = sorted({field for sample in self._samples for field in sample.fields})
        self._fields = None if fields is None else set(fields)
        if self._fields is not None and not self._fields <= set(known):
            raise UsageError(
                "fields are named that no file has",
                given=", ".join(sorted(self._fields - set(known))),
                allowed=", ".join(known),
                next="name some of these as fields=",
            )
        self.classes = tuple(found.classes)
        self.identity = _identity(found)
        said = [
            *notes,
            *found.notes,
            *(f"{len(names)} left out: {kind} ({names[0]})" for kind, names in listing.left_out.items()),
        ]
        if said:
            warnings.warn(f"{self.root}: {'; '.join(said)}", stacklevel=3)
        if len(listing.entries) >= MANY_FILES:
            warnings.warn(
                f"{len(listing.entries)} files are opened one by one in every epoch: `cordee data pack {self.root} "
                "--to FOLDER` makes a few large ones of them, which are read many times as fast",
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
            key, label, fields, entries, _ = self._samples[number]
            sample: Sample = {"key": os.fsdecode(key)} if self.keys else {}
            for field, entry in zip(fields, entries):
                if self._fields is None or field in self._fields:
                    sample[field] = self._bytes(os.fsdecode(entry.name))
            if label is not None:
                sample["label"] = label
            found.append(sample)
        return found

    def describe(self, sample: int) -> str:
        """Return a sample's key and folder."""
        return f"{os.fsdecode(self._samples[sample].key)!r} in {self.root}"

    def _bytes(self, name: str) -> bytes:
        path = os.path.join(self.root, name)
        started = time.perf_counter()
        try:
            with open(path, "rb", buffering=0, opener=regular) as file:
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

    def __init__(self, source: PlainFolder, numbers: list[int], about_bytes: int) -> None:
        self._source, self._numbers, self.bytes = source, numbers, about_bytes

    def read(self, begin: int, end: int) -> list[Sample]:
        return self._source.samples(self._numbers[begin:end])


def _listed(root: str, follow: bool, include: Tuple[str, ...], exclude: Tuple[str, ...]) -> Tuple[Listing, List[str]]:
    """Return the files below a folder that are samples, and what is to be said of them."""
    try:
        listing = list_folder(os.fsencode(root), follow, sizes=False)
    except OSError as error:
        raise _unreadable(root, error.strerror or str(error)) from None
    if UNREADABLE in listing.left_out:
        raise _unreadable(root, "; ".join(listing.left_out[UNREADABLE][:_FEW]))
    leave_out_litter(listing)
    choose(listing, include, exclude)
    if not listing.entries:
        left_out = "; ".join(f"{len(names)} left out: {kind}" for kind, names in listing.left_out.items())
        links = ". Links are followed with follow=True" if LINK in listing.left_out else ""
        raise DataError(
            "the folder holds no files",
            given=root,
            next=f"{left_out}{links}" if left_out else "look whether the path is right",
        )
    found = held(listing.entries, os.fsencode(root))
    said = as_they_are(found, include) if found is not None else ""
    if found is not None and not said:
        raise DataError(
            "files that each hold many samples are not read as samples",
            given=f"{root}: {found.text()}",
            allowed="a packed data set, or a folder of files that are samples",
            next=f"`cordee data pack` it, and read what is packed. {advice(found, root)}",
        )
    return listing, [said] if said else []


def _unreadable(root: str, reason: str) -> DataError:
    return DataError(
        "a folder of the data set cannot be listed", given=f"{root}: {reason}", next="ask for the right to read it"
    )


def _identity(found: Grouped) -> str:
    """Return a digest of all names; where names were split in another way than at their first dot, of that, too."""
    names = sorted(
        (entry.name for sample in found.samples for entry in sample.entries),
        key=lambda name: (name[: name.rfind(b"/") + 1], name),
    )
    text = b"\0".join(names)
    if not found.at_first_dot or any(sample.renamed for sample in found.samples):
        text += b"\0/" + b"\0".join(sample.key for sample in found.samples)
    return hashlib.sha256(text).hexdigest()[:16]
