"""The survey of an object store: by listing it, with sizes and names, and a few first bytes."""

from __future__ import annotations

import time
from collections.abc import Callable

from cordee.core.errors import UsageError
from cordee.systems.data.survey.formats import formats
from cordee.systems.data.survey.model import SizeBin, Survey
from cordee.systems.data.survey.totals import Totals
from cordee.systems.data.survey.worker import MARKERS, MOST_NAMED, MOST_SAMPLES, MOST_SUFFIXES, OTHER, Part, suffix_of
from cordee.wire.stores import open_store

_TELL_EVERY = 10_000


def survey_store(address: str, progress: Callable[[Totals], None] | None = None) -> Survey:
    """List all objects below an address and return what is there; folders, links and ages are not known of a store.

    Raises:
        DataError: the store refuses or does not answer in time.
        UsageError: the address is of another kind, or nothing is there.
    """
    begin, began_s = time.monotonic(), time.time()
    store = open_store(address)
    totals = Totals()
    part = totals.part
    for stored in store.list():
        _add(part, stored.name, stored.bytes)
        if progress and part["files"] % _TELL_EVERY == 0:
            progress(totals)
    if not part["files"]:
        raise UsageError("nothing is at this address", given=address, next="check the bucket and the prefix")
    told = formats(part, lambda name, count: store.read(name, 0, count))
    return Survey(
        path=store.address,
        files=part["files"],
        bytes=part["bytes"],
        allocated_bytes=None,
        folders=None,
        depth=part["depth"],
        links=0,
        links_out=0,
        names_more=0,
        other_files=0,
        empty_files=part["empty"],
        sparse_files=0,
        vanished=0,
        unreadable_count=0,
        unreadable_files=0,
        unreadable=(),
        unreadable_names=(),
        not_crossed_count=0,
        not_crossed=(),
        sizes=tuple(SizeBin(1 << bits, files, size) for bits, (files, size) in sorted(part["sizes"].items())),
        formats=told,
        largest_folders=(),
        file_system="s3",
        began_s=began_s,
        seconds=round(time.monotonic() - begin, 3),
    )


def _add(part: Part, name: str, size: int) -> None:
    """Count one object in what folders are counted in, so that formats are told alike."""
    folder, _, base = name.rpartition("/")
    part["files"] += 1
    part["bytes"] += size
    part["empty"] += not size
    part["depth"] = max(part["depth"], name.count("/"))
    bin_ = part["sizes"].setdefault(size.bit_length(), [0, 0])
    bin_[0] += 1
    bin_[1] += size
    suffix = suffix_of(base)
    if suffix not in part["suffixes"] and len(part["suffixes"]) >= MOST_SUFFIXES:
        suffix = OTHER
    kept = part["suffixes"].setdefault(suffix, [0, 0, 0])
    kept[:] = [kept[0] + 1, kept[1] + size, max(kept[2], size)]
    if kept[0] <= MOST_SAMPLES:
        part["samples"].setdefault(suffix, []).append((name, size))
    if base in MARKERS:
        marked = part["marked"].setdefault(MARKERS[base], {"count": 0, "paths": []})
        marked["count"] += 1
        marked["paths"] = [*marked["paths"], folder][:MOST_NAMED]
