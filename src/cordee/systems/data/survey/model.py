"""What a survey finds: frozen values, and the document that `--json` prints."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from cordee.core.units import utc_text
from cordee.systems.data.survey.purge import time_text

SCHEMA = "cordee.data-survey/1"


@dataclass(frozen=True)
class SizeBin:
    """Files of at least half of `below_bytes`, and less than it; a file of several names counts with each of them."""

    below_bytes: int
    files: int
    bytes: int


@dataclass(frozen=True)
class SurveyedFormat:
    """Files of one format; `by` says how it was told: `content` of samples, `structure` of folders, or only the `name`."""

    name: str
    files: int
    bytes: int
    by: str
    largest_bytes: int = 0
    examples: tuple[str, ...] = ()


@dataclass(frozen=True)
class Folder:
    """A folder and how many entries it has."""

    path: str
    entries: int


@dataclass(frozen=True)
class Chunks:
    """How one array lies in its file or store; `chunk_bytes` None: in one piece. `chunks` counts them where it is known."""

    path: str
    array: str
    shape: tuple[int, ...]
    chunk_shape: tuple[int, ...] | None
    chunk_bytes: int | None
    record_bytes: int
    fits: bool
    reason: str


@dataclass(frozen=True)
class Survey:
    """What lies below a path.

    `files` counts names; `bytes` (apparent) and `allocated_bytes` count a file of several names once, the further names are
    `names_more`. `ages` is by whole days since a file was last written or read, counted from `began_s`. `complete` is False
    where folders could not be looked into (`unreadable_count`): `unreadable` names the first; files that one may not read
    are counted, in `unreadable_files` too, and `unreadable_names` has the first. Where a store has no such thing, a value is None. `kept` is what an earlier survey found; `unsaved` says why the
    state of this one could not be written down.
    """

    path: str
    files: int
    bytes: int
    allocated_bytes: int | None
    folders: int | None
    depth: int
    links: int
    links_out: int
    names_more: int
    other_files: int
    empty_files: int
    sparse_files: int
    vanished: int
    unreadable_count: int
    unreadable_files: int
    unreadable: tuple[str, ...]
    unreadable_names: tuple[str, ...]
    not_crossed_count: int
    not_crossed: tuple[str, ...]
    sizes: tuple[SizeBin, ...]
    formats: tuple[SurveyedFormat, ...]
    largest_folders: tuple[Folder, ...]
    file_system: str
    began_s: float
    seconds: float
    resumed: bool = False
    kept: bool = False
    unsaved: str | None = None
    ages: dict[int, tuple[int, int]] = field(default_factory=dict)
    oldest_s: float | None = None
    chunks: tuple[Chunks, ...] = ()
    chunks_unknown: str | None = None
    samples: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        return not self.unreadable_count

    @property
    def named_bytes(self) -> int:
        """What reading every name reads: a file of several names is read several times."""
        return sum(each.bytes for each in self.sizes)

    @property
    def mean_bytes(self) -> float:
        return self.named_bytes / self.files if self.files else 0.0

    def share(self, *names: str) -> float:
        """Return which share of the bytes is of these formats; of the files, where all are empty."""
        of = "bytes" if self.named_bytes else "files"
        total = sum(getattr(each, of) for each in self.formats)
        return sum(getattr(each, of) for each in self.formats if each.name in names) / total if total else 0.0

    def document(self) -> dict[str, Any]:
        """Return everything as what JSON can hold, without the samples' paths."""
        values = asdict(self)
        del values["samples"], values["ages"], values["oldest_s"], values["began_s"]
        oldest = None if self.oldest_s is None else time_text(self.oldest_s)
        return {
            "schema": SCHEMA,
            **values,
            "complete": self.complete,
            "mean_bytes": round(self.mean_bytes, 1),
            "began": utc_text(self.began_s),
            "oldest": oldest,
        }
