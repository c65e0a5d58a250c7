"""The seam of packing: an origin lists what there is, a plan orders it into samples, a target writes it.

`plan.make_plan(origin, ...)` groups the entries that an origin lists into samples as WebDataset readers do (`a.jpg`, `a.txt`
and `a.json` are one), names them, and orders them. A target gets that plan and nothing else.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from cordee.data.pack.plan import Plan

# Bytes at once where something is read or written in pieces.
CHUNK_BYTES = 4 << 20


class Entry(NamedTuple):
    """One file, archive member, object or table cell that is packed.

    Attributes:
        name: its path below the origin, with `/`, as bytes (any but NUL); unique. What `unpack` gives back.
        length: bytes.
        path: the local file that holds the bytes at `offset`. None: the file `name` below the origin's `root`, or, where
            it has none, what the origin's `chunks` gives.
        offset: of the first byte in `path`; origins without a path may keep a number of their own here.
        stamp_ns: the file's modification time when it was listed, compared after reading; -1: not a file of its own.
    """

    name: bytes
    length: int
    path: bytes | None = None
    offset: int = 0
    stamp_ns: int = -1


@dataclass
class Listing:
    """What an origin holds.

    Attributes:
        entries: in any order.
        labels: the class of a sample by the name of any of its entries, where the origin itself says it (a table).
        classes: names of those classes in the order of their numbers; empty where they are only numbers.
        empty_folders: paths of folders that hold nothing, kept so that `unpack` gives the same tree.
        left_out: what is not packed and why (`link`, `unreadable`, `socket`...), by kind: paths for people.
        allocated_bytes: what the files take on their disk, less than their length where they have holes; None: not known.
        fingerprint: changes when anything listed does; empty: made from names, lengths and stamps.
    """

    entries: list[Entry] = field(default_factory=list)
    labels: Mapping[bytes, int] = field(default_factory=dict)
    classes: Sequence[str] = ()
    empty_folders: list[bytes] = field(default_factory=list)
    left_out: dict[str, list[str]] = field(default_factory=dict)
    allocated_bytes: int | None = None
    fingerprint: str = ""


class Origin(ABC):
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

    def chunks(self, entry: Entry) -> Iterator[bytes]:
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


class Sample(NamedTuple):
    """What is read together: a key, and fields that hold bytes.

    `key` has no dot after its last slash. `renamed` is true where the entries' own names could not be kept as `KEY.field`;
    targets that keep names keep `entry.name` beside. `label` is None where there is none.
    """

    key: bytes
    label: int | None
    fields: tuple[str, ...]
    entries: tuple[Entry, ...]
    renamed: bool


class Unreadable(Exception):
    """An entry that cannot be packed: it cannot be read, or changes while it is read. Caught by whoever packs."""

    def __init__(self, entry: Entry, reason: str) -> None:
        super().__init__(reason)
        self.entry = entry
        self.reason = reason

    def __reduce__(self) -> tuple[type[Unreadable], tuple[Entry, str]]:
        return type(self), (self.entry, self.reason)


@dataclass(frozen=True)
class Options:
    """How to pack, whatever the target.

    Attributes:
        shard_bytes: what a file of the result should hold.
        workers: processes or threads that pack at once; the result is the same for any number.
        skip_unreadable: leave out, count and name what cannot be read, instead of stopping.
        restart: throw away what an earlier call has begun or made there.
        durable: wait until the disk has everything; else a crash of the machine (not of a process) may lose shards.
        name: the data set's.
        chunk: for targets that have chunks: how many samples, or what that target calls it.
        tokenizer: for tokens: see `tokenizers.open_tokenizer`.
    """

    shard_bytes: int = 512_000_000
    workers: int = 1
    skip_unreadable: bool = False
    restart: bool = False
    durable: bool = True
    name: str = ""
    chunk: str = ""
    tokenizer: str = "bytes"


@dataclass
class Packed:
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
    def pack(self, plan: Plan, to: str, options: Options, tell: Tell) -> Packed:
        """Write all samples of the plan, in its order; goes on where an earlier call with the same plan ended.

        Raises:
            UsageError: `to` holds something else.
            DataError: disk full, unreadable entries (unless `skip_unreadable`); what was done stays.
        """


class Place(ABC):
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
