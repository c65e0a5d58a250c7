"""The files of an environment that go into the pack, and what stays out."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from cordee.machine.squashfs.entry import SquashfsEntry
from cordee.machine.squashfs.errors import PackError

# Whatever tools keep beside sources for themselves; byte code is made anew for the one interpreter.
CACHES = {"__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".cache", ".ipynb_checkpoints"}


@dataclass
class VenvTree:
    """What was found below a folder.

    Attributes:
        entries: a folder before what is in it; otherwise by name.
        files, bytes: everything below the folder, what stays out included.
        left_out: paths of sockets, pipes and devices.
    """

    entries: list[SquashfsEntry] = field(default_factory=list)
    files: int = 0
    bytes: int = 0
    left_out: list[Path] = field(default_factory=list)


def read_tree(
    folder: Path, inside: str, compiles: Callable[[Path], bool], leave: Callable[[Path], bool] = lambda path: False
) -> VenvTree:
    """Return what is below `folder`, to be found below `inside` (relative; empty: at the top) in the pack.

    Args:
        compiles: whether the byte code of sources in a folder goes along.
        leave: what stays out, beside caches.

    Raises:
        PackError: something cannot be read.
    """
    tree = VenvTree()
    _read(folder, inside, compiles, leave, tree)
    return tree


def _read(
    folder: Path, inside: str, compiles: Callable[[Path], bool], leave: Callable[[Path], bool], tree: VenvTree
) -> None:
    try:
        with os.scandir(folder) as found:
            items = sorted(found, key=lambda item: item.name)
    except OSError as error:
        raise _unreadable(folder, error)
    compiled = compiles(folder)
    for item in items:
        path, name = Path(item.path), f"{inside}/{item.name}" if inside else item.name
        status = item.stat(follow_symlinks=False)
        if stat.S_ISDIR(status.st_mode):
            if item.name in CACHES or leave(path):
                _count(path, tree)
                continue
            tree.entries.append(SquashfsEntry(name, "folder", time=int(status.st_mtime)))
            _read(path, name, compiles, leave, tree)
            continue
        tree.files += 1
        tree.bytes += status.st_size
        if leave(path):
            continue
        if stat.S_ISLNK(status.st_mode):
            tree.entries.append(SquashfsEntry(name, "link", 0o777, int(status.st_mtime), target=os.readlink(path)))
        elif stat.S_ISREG(status.st_mode):
            mode = 0o755 if status.st_mode & stat.S_IXUSR else 0o644
            compiled_too = compiled and name.endswith(".py")
            tree.entries.append(
                SquashfsEntry(name, "file", mode, int(status.st_mtime), status.st_size, path, compile=compiled_too)
            )
        else:
            tree.left_out.append(path)


def _count(folder: Path, tree: VenvTree) -> None:
    for path in _files(folder):
        tree.files += 1
        tree.bytes += path.lstat().st_size


def _files(folder: Path) -> Iterator[Path]:
    for above, _, names in os.walk(folder):
        yield from (Path(above, name) for name in names)


def _unreadable(path: Path, error: OSError) -> PackError:
    return PackError(
        f"cannot be read: {error.strerror}", given=path, next="pack as somebody who may read the whole environment"
    )
