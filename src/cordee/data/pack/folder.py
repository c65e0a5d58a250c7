"""A folder as origin: every regular file below it; links are not followed unless asked."""

from __future__ import annotations

import os
import stat
from typing import Any

from cordee.data.pack._base import Entry, Listing, Origin

UNREADABLE = "unreadable"
_KINDS = {
    stat.S_IFIFO: "named pipe",
    stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "device",
    stat.S_IFBLK: "device",
}


class FolderOrigin(Origin):
    """All regular files below a folder.

    Args:
        path: the folder.
        follow: pack what symbolic links point to, also outside; loops are left out.
    """

    def __init__(self, path: str, follow: bool = False) -> None:
        self.root = os.fsencode(os.path.abspath(path))
        self.name = os.path.basename(os.path.abspath(path)) or "data"
        self._follow = follow

    def listing(self) -> Listing:
        """Return every file, empty folder, and what cannot or should not be packed."""
        found = Listing()
        assert self.root is not None
        # Folders on the way to one are remembered where links are followed: a link to one of them is a loop.
        waiting: list[tuple[bytes, frozenset[tuple[int, int]]]] = [(b"", frozenset())]
        while waiting:
            below, above = waiting.pop()
            folder = self.root + b"/" + below if below else self.root
            try:
                if self._follow:
                    about = os.stat(folder)
                    here = (about.st_dev, about.st_ino)
                    if here in above:
                        _leave_out(found, "loop of links", below)
                        continue
                    above = above | {here}
                inner = self._scan(folder, below, found)
            except OSError as error:
                _leave_out(found, UNREADABLE, below or b".", error.strerror)
                continue
            waiting += [(name, above) for name in inner]
        return found

    def _scan(self, folder: bytes, below: bytes, found: Listing) -> list[bytes]:
        """Add what one folder holds; return the folders in it."""
        prefix = below + b"/" if below else b""
        entries, inner, anything = found.entries, [], False
        follow, make, blocks = self._follow, Entry._make, 0
        with os.scandir(folder) as scanned:
            for item in scanned:
                anything = True
                name = prefix + item.name
                try:
                    if item.is_file(follow_symlinks=follow):
                        about = item.stat(follow_symlinks=follow)
                        blocks += about.st_blocks
                        entries.append(make((name, about.st_size, None, 0, about.st_mtime_ns)))
                    elif item.is_dir(follow_symlinks=follow):
                        inner.append(name)
                    elif item.is_symlink():
                        _leave_out(found, "broken link" if self._follow else "link, not followed", name)
                    else:
                        mode = item.stat(follow_symlinks=False).st_mode
                        _leave_out(found, _KINDS.get(stat.S_IFMT(mode), "no regular file"), name)
                except OSError as error:
                    _leave_out(found, UNREADABLE, name, error.strerror)
        found.allocated_bytes = (found.allocated_bytes or 0) + blocks * 512
        if not anything and below:
            found.empty_folders.append(below)
        return inner


def _leave_out(found: Listing, kind: str, name: bytes, reason: str | None = None) -> None:
    text = name.decode("utf-8", "backslashreplace")
    found.left_out.setdefault(kind, []).append(f"{text}: {reason}" if reason else text)


def open_origin(address: str, options: dict[str, Any]) -> FolderOrigin:
    """Return the origin of a folder; option `follow`: follow links."""
    return FolderOrigin(address, follow=bool(options.get("follow")))
