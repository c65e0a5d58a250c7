"""`cordee data pack`: from a source to a packed data set."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from cordee.core.errors import DataError, UsageError
from cordee.systems.data.pack._base import PackOptions, PackPlan, PackResult, Tell
from cordee.systems.data.pack.plan import make_plan
from cordee.systems.data.pack.table import open_origin, open_target
from cordee.systems.data.pack.unreadable import refuse_listed


def plan_of(
    source: str,
    *,
    split: str = "auto",
    labels: str = "auto",
    shuffle: int | None = None,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    origin_options: Mapping[str, Any] | None = None,
) -> PackPlan:
    """Return what packing `source` would pack: see `make_plan`.

    Args:
        source: a folder, archive, table or address.
        origin_options: what only some origins know, as `follow` of a folder; `as_files`: files that hold many samples
            (tables, archives) are packed as they are, for an image.

    Raises:
        DataError: it cannot be read, or holds nothing. UsageError: it, or an option, is not what can be packed.
    """
    try:
        origin = open_origin(source, dict(origin_options or {}))
        try:
            return make_plan(
                origin,
                split=split,
                labels=labels,
                shuffle=shuffle,
                include=include,
                exclude=exclude,
                options=origin_options,
            )
        except BaseException:
            origin.close()
            raise
    except OSError as error:
        raise DataError(
            f"what is packed cannot be read: {error.strerror or error}",
            given=os.fsdecode(error.filename or source),
            next="ask whoever keeps it for the right to read",
        ) from None


def pack(
    plan: PackPlan, to: str, options: PackOptions, *, target: str = "webdataset", tell: Tell | None = None
) -> PackResult:
    """Write a plan to a place in a format; goes on where an earlier call ended.

    Raises:
        UsageError: `to` lies in what is packed, or holds something else.
        DataError: something cannot be read or written; what was done stays.
    """
    writer = open_target(target)
    if "/" in options.name or "\0" in options.name or options.name.startswith("."):
        raise UsageError(
            "this cannot be the name of files", given=options.name, allowed="a name without / at its front or inside"
        )
    if "://" not in to and plan.origin.root is not None:
        inside, outside = os.path.realpath(to), os.path.realpath(os.fsdecode(plan.origin.root))
        if inside == outside or inside.startswith(outside + os.sep):
            raise UsageError(
                "a data set cannot be packed into itself",
                given=to,
                allowed=f"a folder outside of {outside}",
                next="choose another folder with --to",
            )
    if not options.skip_unreadable:
        refuse_listed(plan)
    if not options.name:
        options = replace(options, name=_name_for(to, plan.name))
    return writer.pack(plan, to, options, tell or (lambda samples, size: None))


def _name_for(to: str, otherwise: str) -> str:
    """Return the data set's name: its folder's, made of letters, digits, dots, dashes and underlines."""
    last = os.path.basename(os.path.abspath(to) if "://" not in to else to.rstrip("/")) or otherwise
    return "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in last) or "data"
