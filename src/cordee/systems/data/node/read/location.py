"""From the name that a script uses to where the data set lies."""

from __future__ import annotations

import os
import re
from typing import Union

from cordee.core.errors import DataError
from cordee.systems.data.node.read.variables import data_variable

Path = Union[str, "os.PathLike[str]"]
_PREFIX = data_variable("")


def located(name: Path) -> str:
    """Return the path or address of a data set: what the job's `[data.NAME]` says, else the path itself.

    Raises:
        DataError: the job names no such data set, and there is no such path.
    """
    text = os.fspath(name)
    found = os.environ.get(data_variable(text)) if text else None
    if found:
        return found
    if (
        "://" in text or os.path.exists(text) or os.path.exists(f"{text}.idx")
    ):  # the last: tokens, named without an ending
        return text
    known = sorted(key[len(_PREFIX) :].lower() for key in os.environ if key.startswith(_PREFIX))
    raise DataError(
        "there is no such data set",
        given=text,
        allowed=f"a data set of the job ({', '.join(known) or 'it names none'}), a path that exists, or an s3:// address",
        next=f'add [data.{text}] with from = "..." to cordee.toml, or set {data_variable(text)}'
        if re.fullmatch(r"[\w-]+", text)
        else f"look whether the path is right, seen from {os.getcwd()}",
    )


def short_name(name: Path) -> str:
    """Return what a data set is called in the run's telemetry: the name, or the last part of the path."""
    return os.fspath(name).rstrip("/").rpartition("/")[2] or os.fspath(name)
