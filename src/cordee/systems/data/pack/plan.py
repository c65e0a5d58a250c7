"""The plan: which samples there are, how they are called and in which order; the same for the same origin, always."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from cordee.core.errors import DataError, UsageError
from cordee.systems.data.node.shards.entries import Listing, Sample
from cordee.systems.data.node.shards.groups import choose, grouped, leave_out_litter
from cordee.systems.data.node.shards.index import INDEX_NAME
from cordee.systems.data.pack._base import PackPlan, SampleOrigin
from cordee.systems.data.pack.origins.tables import rows_of

_INDEX = INDEX_NAME.encode()
SPLITS = ("auto", "first", "last")
LABELS = ("auto", "folders", "none")


def make_plan(
    origin: SampleOrigin,
    *,
    split: str = "auto",
    labels: str = "auto",
    shuffle: int | None = None,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    options: Mapping[str, Any] | None = None,
) -> PackPlan:
    """Return the plan of everything that an origin holds.

    Args:
        split: where a name ends and its field begins: at the `first` dot as WebDataset has it, at the `last`, or `auto`:
            the first unless that makes very many fields.
        labels: `folders`: the first folder is the class; `auto`: only where it looks like image folders.
        shuffle: a seed: the samples are packed in an order shuffled by it, instead of by name.
        include, exclude: patterns of names (`*.jpg`, `train/*`) to take alone, and to leave out.
        options: as those of the origin; `as_files`: files that hold many samples are packed as they are.

    Raises:
        DataError: the origin cannot be listed, holds nothing to pack, or the same name twice.
        UsageError: it is packed already, cannot be shuffled, or holds files of many samples that cannot be packed.
    """
    with _without_collecting():
        return _make_plan(origin, split, labels, shuffle, include, exclude, options or {})


def _make_plan(
    origin: SampleOrigin,
    split: str,
    labels: str,
    shuffle: int | None,
    include: Sequence[str],
    exclude: Sequence[str],
    options: Mapping[str, Any],
) -> PackPlan:
    check_choice(split, SPLITS, "way to split names")
    check_choice(labels, LABELS, "way to label")
    listing = origin.listing()
    leave_out_litter(listing)
    notes: list[str] = []
    rows = None if options.get("as_files") else rows_of(origin, listing, include, exclude, options, notes)
    if rows is not None:
        origin, listing = rows.origin, rows.origin.listing()
        listing.left_out = {**rows.left_out, **listing.left_out}
    if rows is None or not rows.files_chosen:
        choose(listing, include, exclude)
    if not listing.entries and not listing.samples:
        raise DataError(
            "there is nothing to pack",
            given=origin.name,
            allowed="regular files",
            next=_why_nothing(listing) or "check the path",
        )
    if any(entry.name == _INDEX for entry in listing.entries):
        raise UsageError(
            "this is a packed data set already",
            given=origin.name,
            allowed="what is not packed yet",
            next="copy it as it is, or pack its files: `cordee data unpack` gives them back",
        )
    samples, classes, more, _ = grouped(listing, split, labels)
    if shuffle is not None and origin.sequential:
        raise UsageError("this can only be packed in its own order", given=f"--shuffle {shuffle}", next="leave it out")
    if shuffle is not None:
        samples = _shuffled(samples, shuffle)
    plan = PackPlan(origin, listing, samples, classes)
    plan.notes += notes + more
    return plan


@contextmanager
def _without_collecting() -> Iterator[None]:
    """Keep the collector from looking through millions of new tuples again and again: none of them is garbage."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _why_nothing(listing: Listing) -> str:
    return "; ".join(f"{len(paths)} left out: {kind}" for kind, paths in listing.left_out.items())


def _shuffled(samples: list[Sample], seed: int) -> list[Sample]:
    import numpy

    from cordee.systems.data.node.read.order.permutation import shuffled

    order = shuffled(numpy.arange(len(samples)), len(samples), seed, 0)
    return [samples[at] for at in order.tolist()]


def check_choice(given: str, allowed: Sequence[str], what: str) -> None:
    """Refuse a word that is not among the allowed ones.

    Raises:
        UsageError: it is not.
    """
    if given not in allowed:
        raise UsageError(f"there is no such {what}", given=given, allowed=list(allowed))
