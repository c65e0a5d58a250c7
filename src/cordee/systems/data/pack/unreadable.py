"""What cannot be read is told as a whole: one call names every such file, not the first one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NoReturn

from cordee.core.errors import DataError
from cordee.systems.data.node.shards.folder import UNREADABLE
from cordee.systems.data.pack._base import Unreadable

if TYPE_CHECKING:
    from cordee.systems.data.pack._base import PackPlan

_SHOWN = 20


def refuse_listed(plan: PackPlan) -> None:
    """Refuse a plan whose origin already had folders or files that could not be looked at.

    Raises:
        DataError: there are some.
    """
    found = plan.left_out.get(UNREADABLE)
    if found:
        raise _error(found)


def refuse_unreadable(plan: PackPlan, first: Unreadable) -> NoReturn:
    """Raise the error about everything that cannot be opened, and `first`.

    Raises:
        DataError: always.
    """
    found = {_text(first.entry.name, first.reason): None}
    for sample in plan.samples():
        for entry in sample.entries:
            path = plan.path_of(entry)
            if path is None or entry.stamp_ns < 0 or entry.name == first.entry.name:
                continue
            try:
                os.close(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK))
            except OSError as error:
                found[_text(entry.name, error.strerror or str(error))] = None
    raise _error(list(found)) from None


def _text(name: bytes, reason: str) -> str:
    return f"{name.decode('utf-8', 'backslashreplace')}: {reason}"


def _error(found: list[str]) -> DataError:
    more = [f"and {len(found) - _SHOWN} more"] if len(found) > _SHOWN else []
    return DataError(
        f"{len(found)} {'file' if len(found) == 1 else 'files'} cannot be read",
        given="; ".join([*found[:_SHOWN], *more]),
        next="make them readable and repeat the command, or leave them out, counted and named: --skip-unreadable",
    )
