"""Counts what a piece of code asks of a file system, for tests that hold a budget."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_AUDITED = {"open": "open", "os.listdir": "list", "os.scandir": "list", "os.mkdir": "make", "os.rename": "rename"}
_AUDITED |= {"os.remove": "remove", "os.utime": "touch", "os.truncate": "truncate"}
_counting: list[tuple[str, Counter[str]]] = []
_hooked = False


@contextmanager
def counted(folder: Path) -> Iterator[Counter[str]]:
    """Count operations on names in this process, all threads, by kind: open, list, stat, make, rename, remove, touch.

    Reads and writes of what is open are none. What is done by C code beside Python's own functions, as `DirEntry.stat`, is not
    seen: compare with strace when such code is counted.

    Args:
        folder: names below it are counted, and names that are relative to something: threads of others go on meanwhile.
    """
    global _hooked
    if not _hooked:
        sys.addaudithook(_heard)
        _hooked = True
    found: Counter[str] = Counter()
    entry = (os.fspath(folder), found)
    real = os.stat

    def stat(path: Any, *more: Any, **options: Any) -> os.stat_result:
        _note("stat", path)
        return real(path, *more, **options)

    _counting.append(entry)
    os.stat = stat
    try:
        yield found
    finally:
        os.stat = real
        _counting.remove(entry)


def _heard(event: str, arguments: tuple[Any, ...]) -> None:
    kind = _AUDITED.get(event)
    if _counting and kind is not None and arguments:
        _note(kind, arguments[0])


def _note(kind: str, path: Any) -> None:
    if isinstance(path, int) and kind == "list":
        path = os.readlink(f"/proc/self/fd/{path}")
    if isinstance(path, int) or path is None:
        return
    name = os.fsdecode(path)
    for below, found in _counting:
        if not os.path.isabs(name) or name.startswith(below):
            found[kind] += 1
