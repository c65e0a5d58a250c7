"""The seam of packing: an origin lists what there is, a plan orders it into samples, a target writes it.

`plan.make_plan(origin, ...)` groups the entries that an origin lists into samples as WebDataset readers do (`a.jpg`, `a.txt`
and `a.json` are one), names them, and orders them. A target gets that plan and nothing else.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice

from cordee.systems.data.node.shards.entries import Listing, PackedEntry, Sample

# Bytes at once where something is read or written in pieces.
CHUNK_BYTES = 4 << 20


class SampleOrigin(ABC):
    """Where samples come from: a folder, an archive, a table, objects of a store.

    `listing` is called once, before anything else. `chunks` is called by several workers at once: by threads of this process
    where `threads` is true (clients that do not survive a fork), else by forked processes.

    Attributes:
        name: what the data set is called if nobody says otherwise.
        root: the folder below which entries without a path are files.
        sequential: its entries can only be read in the order in which they are listed.
    """

    name: str
    root: bytes | None = None
    threads = False
    sequential = False

    @abstractmethod
    def listing(self) -> Listing:
        """Return everything that could be packed.

        Raises:
            DataError: the origin cannot be listed, with the path and the reason.
        """

    def chunks(self, entry: PackedEntry) -> Iterator[bytes]:
        """Yield the bytes of an entry without a path, some megabytes at a time.

        Raises:
            OSError, DataError: they cannot be read; the entry is named by whoever asked.
        """
        raise NotImplementedError

    def check(self) -> None:  # noqa: B027
        """Look once more whether it is still what was listed; called when all is packed. Files are compared one by one.

        Raises:
            DataError: it has changed meanwhile.
        """

    def close(self) -> None:  # noqa: B027
        """Give back what is open."""


class Unreadable(Exception):
    """An entry that cannot be packed: it cannot be read, or changes while it is read. Caught by whoever packs."""

    def __init__(self, entry: PackedEntry, reason: str) -> None:
        super().__init__(reason)
        self.entry = entry
        self.reason = reason

    def __reduce__(self) -> tuple[type[Unreadable], tuple[PackedEntry, str]]:
        return type(self), (self.entry, self.reason)


class PackPlan:
    """Samples in the order in which they are packed, and what a target must know of their origin.

    Attributes:
        origin: gives the bytes; ask `path_of` first.
        name: of the data set.
        classes: names of the labels, in order.
        fields: names of all fields, sorted; lower case.
        empty_folders, left_out: as the listing says, and what was left out since.
        notes: sentences for people.
        fingerprint: changes when the origin, the order or the names do.
    """

    def __init__(self, origin: SampleOrigin, listing: Listing, samples: list[Sample], classes: Sequence[str]) -> None:
        self.origin = origin
        self.name = origin.name
        self.classes = tuple(classes)
        self.empty_folders = sorted(listing.empty_folders)
        self.left_out = listing.left_out
        self._allocated_bytes = listing.allocated_bytes
        self.notes: list[str] = []
        self.fields = tuple(sorted({field for fields in {sample.fields for sample in samples} for field in fields}))
        self._samples = samples
        self.fingerprint = _fingerprint(listing, samples)

    def __len__(self) -> int:
        return len(self._samples)

    @property
    def total_bytes(self) -> int:
        """Return the bytes of all samples."""
        return sum(entry.length for sample in self._samples for entry in sample.entries)

    @property
    def disk_bytes(self) -> int:
        """Return what the samples take on a disk; holes of files stay holes."""
        total = self.total_bytes
        return total if self._allocated_bytes is None else min(total, self._allocated_bytes)

    @property
    def files(self) -> int:
        """Return how many entries the samples are made of."""
        return sum(len(sample.entries) for sample in self._samples)

    def samples(self, start: int = 0, stop: int | None = None) -> Iterator[Sample]:
        """Yield samples `start` to `stop` (not included)."""
        return islice(self._samples, start, stop)

    def path_of(self, entry: PackedEntry) -> bytes | None:
        """Return the local file that holds an entry's bytes, at `entry.offset`; None: ask `origin.chunks`."""
        if entry.path is not None:
            return entry.path
        return self.origin.root + b"/" + entry.name if self.origin.root is not None else None


@dataclass(frozen=True)
class PackOptions:
    """How to pack, whatever the target.

    Attributes:
        shard_bytes: what a file of the result should hold.
        workers: processes or threads that pack at once; the result is the same for any number.
        skip_unreadable: leave out, count and name what cannot be read, instead of stopping.
        restart: throw away what an earlier call has begun or made there.
        durable: wait until the disk has everything; else a crash of the machine (not of a process) may lose shards.
        name: the data set's.
        tokenizer: for tokens: see `tokenizers.open_tokenizer`.
        text: for tokens: the key of lines of JSON, or the column of a table, that is the document.
    """

    shard_bytes: int = 512_000_000
    workers: int = 1
    skip_unreadable: bool = False
    restart: bool = False
    durable: bool = True
    name: str = ""
    tokenizer: str = "bytes"
    text: str = "text"


@dataclass
class PackResult:
    """What was made: for the report and `--json`.

    Attributes:
        already: nothing was done: the same was packed there before.
        packed_s: when that was, UTC epoch seconds; None: not known.
    """

    path: str
    index: str | None
    shards: int
    samples: int
    bytes: int
    seconds: float
    resumed_shards: int = 0
    left_out: dict[str, list[str]] = field(default_factory=dict)
    id: str = ""
    already: bool = False
    packed_s: float | None = None


# Called with (samples, bytes) done so far in all, as often as the target likes.
Tell = Callable[[int, int], None]


class Target(ABC):
    """What a plan is written to. Nothing under its final name is ever incomplete, whenever the process is killed."""

    @abstractmethod
    def pack(self, plan: PackPlan, to: str, options: PackOptions, tell: Tell) -> PackResult:
        """Write all samples of the plan, in its order; goes on where an earlier call with the same plan ended.

        Raises:
            UsageError: `to` holds something else.
            DataError: disk full, unreadable entries (unless `skip_unreadable`); what was done stays.
        """


class PackTarget(ABC):
    """Where whole files of a data set go: a folder, or a store. Called by several workers at once.

    Attributes:
        threads: the workers must be threads of this process, as for an origin.
    """

    threads = False

    @abstractmethod
    def sizes(self) -> dict[str, int]:
        """Return the size of every file there by name, only of those that are whole."""

    @abstractmethod
    def take(self, partial: str, name: str) -> None:
        """Put the local file `partial` there as `name`, whole and durably or not at all; `partial` is gone then."""

    @abstractmethod
    def remove(self, name: str) -> None:
        """Remove a file; none of that name is no error."""


def _fingerprint(listing: Listing, samples: list[Sample]) -> str:
    """Return a digest of all that decides about the result: names, order, lengths, times, labels, what is one sample."""
    entries = list(chain.from_iterable([sample.entries for sample in samples]))
    found = hashlib.sha256(listing.fingerprint.encode())
    found.update(b"\0".join([entry.name for entry in entries]))
    found.update(b"\0/".join(sorted(listing.empty_folders)))
    found.update(array("q", [entry.length for entry in entries]).tobytes())
    found.update(array("q", [entry.offset for entry in entries]).tobytes())
    found.update(array("q", [entry.stamp_ns for entry in entries]).tobytes())
    found.update(array("q", [len(sample.entries) for sample in samples]).tobytes())
    found.update(array("q", [-1 if sample.label is None else sample.label for sample in samples]).tobytes())
    return found.hexdigest()
