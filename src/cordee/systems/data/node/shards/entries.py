"""What is packed, or read before it is: entries, as an origin lists them, and the samples that they are."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple


class PackedEntry(NamedTuple):
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
    path: Optional[bytes] = None
    offset: int = 0
    stamp_ns: int = -1


@dataclass
class Listing:
    """What an origin holds.

    Attributes:
        entries: in any order.
        samples: what is one sample, where the origin itself says it (the rows of a table); None: names of files say it.
        classes: names of the classes of those samples in the order of their numbers; empty where they are only numbers.
        empty_folders: paths of folders that hold nothing, kept so that `unpack` gives the same tree.
        left_out: what is not packed and why (`link`, `unreadable`, `socket`...), by kind: paths for people.
        allocated_bytes: what the files take on their disk, less than their length where they have holes; None: not known.
        fingerprint: changes when anything listed does; empty: made from names, lengths and stamps.
    """

    entries: List[PackedEntry] = field(default_factory=list)
    samples: Optional[List[Sample]] = None
    classes: Sequence[str] = ()
    empty_folders: List[bytes] = field(default_factory=list)
    left_out: Dict[str, List[str]] = field(default_factory=dict)
    allocated_bytes: Optional[int] = None
    fingerprint: str = ""


class Sample(NamedTuple):
    """What is read together: a key, and fields that hold bytes.

    `key` has no dot after its last slash. `renamed` is true where the entries' own names could not be kept as `KEY.field`;
    targets that keep names keep `entry.name` beside. `label` is None where there is none.
    """

    key: bytes
    label: Optional[int]
    fields: Tuple[str, ...]
    entries: Tuple[PackedEntry, ...]
    renamed: bool
