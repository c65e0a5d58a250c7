"""From what is listed to samples: one rule for packing and for reading what is not packed yet."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import Dict, Iterable, List, NamedTuple, Sequence

from cordee.systems.data.node.shards import sample_names
from cordee.systems.data.node.shards.classes import folder_classes
from cordee.systems.data.node.shards.entries import Listing, PackedEntry, Sample

NOT_ASKED_FOR = "not asked for (--include, --exclude)"
LITTER = "made by macOS or Windows, no data"
# What these systems leave in every folder that they have shown; `._NAME` and __MACOSX hold what macOS notes of a file.
_LITTER = {b".ds_store", b"thumbs.db", b"ehthumbs.db", b"desktop.ini"}
TOOLS = "made by Jupyter, version control, a file server or Python, no data"
_TOOLS = re.compile(
    rb"(?:^|/)(?:\.ipynb_checkpoints|\.git|\.svn|@eaDir|\$RECYCLE\.BIN|System Volume Information|lost\+found|__pycache__)/"
)
_FEW = 5


class Grouped(NamedTuple):
    """Samples in their order, the names of their classes, sentences for people, and whether names end at the first dot."""

    samples: List[Sample]
    classes: List[str]
    notes: List[str]
    at_first_dot: bool


def grouped(listing: Listing, split: str = "auto", labels: str = "auto") -> Grouped:
    """Return the samples of a listing.

    Args:
        split: where a name ends and its field begins: at the `first` dot as WebDataset has it, at the `last`, or `auto`:
            the first unless that makes very many fields.
        labels: `folders`: the first folder is the class; `auto`: only where it looks like image folders; `none`.

    Raises:
        DataError: a name occurs twice. UsageError: as `folder_classes`.
    """
    if listing.samples is not None:
        return _of_rows(listing, labels)
    folders = sample_names.by_folder(listing.entries)
    chosen = sample_names.choose_split(folders) if split == "auto" else split
    classes, class_of_folder, notes = ([], {}, []) if labels == "none" else folder_classes(folders, labels == "folders")
    samples = list(sample_names.samples(folders, chosen == "first", class_of_folder))
    if split == "auto" and chosen == "last":
        notes.append(
            "names hold many dots: what follows the last one is the field; --split first does as WebDataset does"
        )
    if beside := sample_names.beside_others(samples):
        shown = ", ".join(name.decode("utf-8", "backslashreplace") for name in beside[:_FEW])
        more = ", ..." if len(beside) > _FEW else ""
        notes.append(
            f"the names of {len(beside)} files are taken by others, from which they differ in capitals or dots only: "
            f"each is a sample of its own, with ~2 behind its name ({shown}{more})"
        )
    return Grouped(samples, classes, notes, chosen == "first")


def _of_rows(listing: Listing, labels: str) -> Grouped:
    """Return the rows of a table; where none has a class their files' folders may be classes."""
    samples = list(listing.samples or ())
    if labels == "none" or any(sample.label is not None for sample in samples):
        return Grouped(samples, list(listing.classes), [], True)
    files = {entry.name: entry for sample in samples for entry in sample.entries}
    classes, numbers, notes = folder_classes(sample_names.by_folder(files.values()), force=labels == "folders")
    if classes:
        samples = [sample._replace(label=numbers.get(sample.key[: sample.key.find(b"/")])) for sample in samples]
    return Grouped(samples, classes, notes, True)


def in_order(rows: Iterable[Sample]) -> List[Sample]:
    """Return the rows of a table in the order of their keys; the fields of each in that of their names."""
    found = []
    for row in rows:
        if len(row.fields) > 1:
            fields, entries = zip(*sorted(zip(row.fields, row.entries), key=lambda one: one[1].name))
            row = row._replace(fields=fields, entries=entries)
        found.append(row)
    return sorted(found, key=_place)


def _place(row: Sample) -> "tuple[bytes, bytes]":
    cut = row.key.rfind(b"/") + 1
    return row.key[:cut], row.key[cut:] + b"."


def choose(listing: Listing, include: Sequence[str], exclude: Sequence[str]) -> None:
    """Keep only the entries that are asked for: those like one of `include`, where there are some, and none of `exclude`."""
    if not include and not exclude:
        return
    before = _count(listing)
    listing.entries[:] = [entry for entry in listing.entries if chosen(entry, include, exclude)]
    if listing.samples is not None:
        rows = []
        for row in listing.samples:
            pairs = [(field, entry) for field, entry in zip(row.fields, row.entries) if chosen(entry, include, exclude)]
            if pairs:
                fields, entries = zip(*pairs)
                rows.append(row._replace(fields=fields, entries=entries))
        listing.samples = rows
    if dropped := before - _count(listing):
        listing.left_out[NOT_ASKED_FOR] = [f"{dropped} files"]
    listing.empty_folders.clear()


def chosen(entry: PackedEntry, include: Sequence[str], exclude: Sequence[str]) -> bool:
    """Return whether an entry is asked for."""
    name = entry.name.decode("utf-8", "surrogateescape")
    return (not include or any(matches(name, one) for one in include)) and not any(
        matches(name, one) for one in exclude
    )


def _count(listing: Listing) -> int:
    return len(listing.entries) + sum(len(row.entries) for row in listing.samples or ())


def matches(name: str, pattern: str) -> bool:
    """Return whether a name, or its last part where the pattern has no slash, is like the pattern."""
    return fnmatchcase(name, pattern) or ("/" not in pattern and fnmatchcase(name.rpartition("/")[2], pattern))


def leave_out_litter(listing: Listing) -> None:
    """Leave out what systems and tools put beside people's files, counted and named."""
    found: Dict[bytes, None] = {}
    of_tools = {entry.name: None for entry in listing.entries if _TOOLS.search(entry.name)}
    for entry in listing.entries:
        base = entry.name[entry.name.rfind(b"/") + 1 :]
        if base.startswith(b"._") or base.lower() in _LITTER or entry.name.startswith(b"__MACOSX/"):
            found[entry.name] = None
    for why, names in ((TOOLS, of_tools), (LITTER, found)):
        if names:
            listing.entries[:] = [entry for entry in listing.entries if entry.name not in names]
            listing.left_out[why] = [name.decode("utf-8", "backslashreplace") for name in names]
