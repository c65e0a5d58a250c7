"""What a folder holds: every regular file below it; links are not followed unless asked."""

from __future__ import annotations

import os
import stat
from typing import FrozenSet, List, Optional, Tuple

from cordee.systems.data.node.shards.entries import Listing, PackedEntry

UNREADABLE = "unreadable"
LINK = "link, not followed"
_KINDS = {
    stat.S_IFIFO: "named pipe",
    stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "device",
    stat.S_IFBLK: "device",
}


def list_folder(root: bytes, follow: bool = False, sizes: bool = True) -> Listing:
    """Return every file, empty folder, and what cannot or should not be packed.

    Args:
        follow: take what symbolic links point to, also outside; loops are left out.
        sizes: ask for the size and time of each file, which costs a question to the file system each; else both are 0.

    Raises:
        OSError: the folder itself cannot be listed.
    """
    found = Listing()
    # Folders on the way to one are remembered where links are followed: a link to one of them is a loop.
    waiting: List[Tuple[bytes, FrozenSet[Tuple[int, int]]]] = [(b"", frozenset())]
    while waiting:
        below, above = waiting.pop()
        folder = root + b"/" + below if below else root
        try:
            if follow:
                about = os.stat(folder)
                here = (about.st_dev, about.st_ino)
                if here in above:
                    _leave_out(found, "loop of links", below)
                    continue
                above = above | {here}
            inner = _scan(folder, below, found, follow, sizes)
        except OSError as error:
            if not below:
                raise
            _leave_out(found, UNREADABLE, below, error.strerror)
            continue
        waiting += [(name, above) for name in inner]
    return found


def _scan(folder: bytes, below: bytes, found: Listing, follow: bool, sizes: bool) -> List[bytes]:
    """Add what one folder holds; return the folders in it."""
    prefix = below + b"/" if below else b""
    inner: List[bytes] = []
    entries, anything = found.entries, False
    make, blocks = PackedEntry._make, 0
    with os.scandir(folder) as scanned:
        for item in scanned:
            anything = True
            name = prefix + item.name
            try:
                if item.is_file(follow_symlinks=follow):
                    if not sizes:
                        entries.append(make((name, 0, None, 0, 0)))
                        continue
                    about = item.stat(follow_symlinks=follow)
                    blocks += about.st_blocks
                    entries.append(make((name, about.st_size, None, 0, about.st_mtime_ns)))
                elif item.is_dir(follow_symlinks=follow):
                    inner.append(name)
                elif item.is_symlink():
                    _leave_out(found, "broken link" if follow else LINK, name)
                else:
                    mode = item.stat(follow_symlinks=False).st_mode
                    _leave_out(found, _KINDS.get(stat.S_IFMT(mode), "no regular file"), name)
            except OSError as error:
                _leave_out(found, UNREADABLE, name, error.strerror)
    if sizes:
        found.allocated_bytes = (found.allocated_bytes or 0) + blocks * 512
    if not anything and below:
        found.empty_folders.append(below)
    return inner


def _leave_out(found: Listing, kind: str, name: bytes, reason: Optional[str] = None) -> None:
    text = name.decode("utf-8", "backslashreplace")
    found.left_out.setdefault(kind, []).append(f"{text}: {reason}" if reason else text)
