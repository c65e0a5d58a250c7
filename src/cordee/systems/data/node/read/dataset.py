"""`cordee.dataset`: the samples of a training, in an order that any restart goes on with."""

from __future__ import annotations

import operator
import os
import re
from functools import partial
from typing import Any, Mapping, Optional, Sequence, Union

from cordee.core.errors import UsageError
from cordee.core.units import parse_size
from cordee.systems.data.node.read._base import SampleSource
from cordee.systems.data.node.read.batches.batches import Change, Work
from cordee.systems.data.node.read.batches.collate import Collate, columns
from cordee.systems.data.node.read.batches.decoding import Decode, decoder
from cordee.systems.data.node.read.location import located, short_name
from cordee.systems.data.node.read.loop import Dataset
from cordee.systems.data.node.read.order.mixture import Mix
from cordee.systems.data.node.read.order.position import DROP, SHORT
from cordee.systems.data.node.read.order.ranks import own_share

PREFETCH = "256MB"
_UNKNOWN_ARGUMENT = re.compile(r"(?:(\w+)\.)?__init__\(\) got an unexpected keyword argument '(\w+)'")

Path = Union[str, "os.PathLike[str]"]
What = Union[Path, SampleSource, Mapping[Path, float]]


def dataset(
    what: What,
    *,
    batch: int,
    seed: int = 0,
    shuffle: bool = True,
    fields: Optional[Sequence[str]] = None,
    decode: Decode = None,
    transform: Optional[Change] = None,
    collate: Optional[Collate] = None,
    last: str = SHORT,
    rank: Optional[int] = None,
    world: Optional[int] = None,
    mesh: Any = None,
    threads: Optional[int] = None,
    prefetch: Union[int, str] = PREFETCH,
    corrupt: str = "raise",
    samples_per_epoch: Optional[int] = None,
    **options: Any,
) -> "Dataset":
    """Return the data set as an iterable of batches that knows its position; every rank makes one with the same arguments.

    `for batch in ds` gives the rest of an epoch. A batch is a dict of columns: numbers, and arrays of one shape, stacked
    along a first axis; bytes and texts as lists.

    Args:
        what: the name of the job's `[data.NAME]`, a path, an `s3://` address, or several with their weights,
            `{"web": 0.7, "code": 0.3}`.
        batch: samples of one step over all ranks together; rank r of R gets the r-th of R equal parts.
        seed: of the order; with the epoch it decides which sample stands where.
        shuffle: False: as the samples lie.
        fields: only these are read.
        decode: None: bytes as they were packed; "auto": by the field's name (jpg, json, npy, ...); a function of a
            sample (a dict); or a function or "auto" by field. Runs in threads.
        transform: then this function of a sample; runs in threads.
        collate: makes a batch from a list of samples; default: columns, as above.
        last: "short": an epoch's last batch is smaller where the samples do not fill it; "drop": it is left out.
        rank, world, mesh: which part is this rank's: see `cordee.systems.data.node.read.order.ranks.own_share`. Default: found.
        threads: that decode; default: the processors this rank may use but one, which is the
            loop's. 0: the thread of the loop decodes.
        prefetch: about how many bytes of batches are made before they are asked for.
        corrupt: "raise", or "skip": a corrupt sample is left out of its batch, counted and named once.
        samples_per_epoch: of a mix: what is called its epoch; default: the sum of the sizes.
        options: of the kind of data set: `keys=True`, `check="always"`; `length=1024` of tokens.

    Raises:
        DataError: there is no such data set, or it cannot be read.
        UsageError: an argument does not fit.
    """
    choose(last, "last", (SHORT, DROP))
    choose(corrupt, "corrupt", ("raise", "skip"))
    opening = dict(options)
    if fields is not None:
        opening["fields"] = list(fields)
    if corrupt != "raise":
        opening["corrupt"] = corrupt
    source, name, place = _opened(what, samples_per_epoch, opening)
    work = Work(decoder(decode), transform, partial(_of_list, collate) if collate else columns, corrupt == "skip")
    try:
        prefetch_bytes = parse_size(prefetch)
    except ValueError as error:
        raise UsageError(f"prefetch is no size: {error}", given=prefetch) from None
    return Dataset(
        source,
        name,
        place,
        _whole(batch, "batch"),
        _whole(seed, "seed", -(1 << 63)),
        bool(shuffle),
        last,
        work,
        partial(own_share, rank, world, mesh),
        None if threads is None else _whole(threads, "threads", 0),
        prefetch_bytes,
    )


def _of_list(collate: Collate, samples: Sequence[Any]) -> Any:
    """Make a batch by the user's function, which is promised a list."""
    return collate(list(samples))


def choose(value: str, name: str, allowed: Sequence[str]) -> None:
    """Refuse a value that is none of `allowed`."""
    if value not in allowed:
        raise UsageError(f"invalid value for {name}", given=value, allowed=allowed)


def _opened(what: What, samples_per_epoch: Optional[int], options: dict[str, Any]) -> tuple[SampleSource, str, str]:
    """Return the source, its name, and where it lies; empty for a mix, whose parts lie anywhere."""
    if isinstance(what, Mapping):
        if not what:
            raise UsageError("a mix needs data sets", given=what, allowed="for example {'web': 0.7, 'code': 0.3}")
        sources = {os.fspath(name): _open(located(name), options) for name in what}
        weights = {os.fspath(name): weight for name, weight in what.items()}
        epoch = None if samples_per_epoch is None else _whole(samples_per_epoch, "samples_per_epoch")
        mix = Mix(sources, weights, epoch)
        return mix, "+".join(short_name(name) for name in sources), ""
    if samples_per_epoch is not None:
        raise UsageError(
            "samples_per_epoch is for mixes: a single data set's epoch is all its samples", given=samples_per_epoch
        )
    if isinstance(what, SampleSource):
        unknown = [name for name in options if name not in ("fields", "corrupt")]
        if unknown:
            raise UsageError(
                f"cordee.dataset takes no argument {unknown[0]!r} of a source that is open already",
                given=f"{unknown[0]}={options[unknown[0]]!r}",
                allowed=_arguments(None),
            )
        return what, what.name, ""
    place = located(what)
    return _open(place, options), short_name(what), place


def _open(place: str, options: dict[str, Any]) -> SampleSource:
    from cordee.systems.data.node.read.sources import open_source

    try:
        return open_source(place, **options)
    except TypeError as error:
        unknown = _UNKNOWN_ARGUMENT.match(str(error))
        if unknown is None:
            raise
        name = unknown.group(2)
        raise UsageError(
            f"cordee.dataset takes no argument {name!r} of such a data set",
            given=f"{name}={options.get(name)!r}",
            allowed=_arguments(unknown.group(1)),
        ) from None


def _arguments(made_by: Optional[str]) -> list[str]:
    """Return the arguments of `dataset`, and those that a kind of data set takes beside them."""
    import inspect

    from cordee.systems.data.node.read import sources

    kind = getattr(sources, made_by or "", None)
    names = [*inspect.signature(dataset).parameters, *(inspect.signature(kind).parameters if kind else ())]
    return [name for name in dict.fromkeys(names) if name not in ("what", "options", "path")]


def _whole(value: Any, name: str, least: int = 1) -> int:
    try:
        whole = operator.index(value)
    except TypeError:
        whole = least - 1
    if isinstance(value, bool) or whole < least:
        raise UsageError(f"{name} is no number that fits", given=value, allowed=f"an integer from {least}")
    return whole
