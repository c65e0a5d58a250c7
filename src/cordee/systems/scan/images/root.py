"""An image that is a folder: the root of a system, as unpacked."""

from __future__ import annotations

import os
import stat

from cordee.machine.foreign_files import read_regular
from cordee.systems.scan.images.found import ImageFinder, is_wanted

_MOST_NAMES = 20_000_000
_TEXTS_BYTES = 512 << 20


def look_at_root(root: str, finder: ImageFinder) -> None:
    """Look at all names below a root; no link is followed, and nothing is opened but regular files."""
    texts = count = 0
    for folder, folders, names in os.walk(root):
        folders.sort()
        for name in sorted(names):
            count += 1
            if count > _MOST_NAMES:
                finder.saw("image-too-much", "unknown", f"it has more than {_MOST_NAMES:,} names")
                return
            path = os.path.join(folder, name)
            inside = os.path.relpath(path, root)
            try:
                about = os.lstat(path)
            except OSError:
                continue
            if not stat.S_ISREG(about.st_mode):
                continue
            finder.name(inside, "file", stat.S_IMODE(about.st_mode), about.st_uid, capable=_is_capable(path))
            if is_wanted(inside, about.st_size):
                texts += about.st_size
                if texts > _TEXTS_BYTES:
                    finder.saw("image-too-much", "unknown", "it has more text than could be looked at")
                    continue
                _content(path, root, inside, about.st_size, finder)


def _content(path: str, root: str, inside: str, size: int, finder: ImageFinder) -> None:
    try:
        finder.content(inside, read_regular(path, below=root, limit_bytes=size))
    except (OSError, ValueError) as error:
        said = getattr(error, "strerror", None) or error
        finder.saw("image-unreadable", "warn", f"a file of it cannot be read: {said}", f"/{inside}")


def _is_capable(path: str) -> bool:
    try:
        return bool(os.getxattr(path, "security.capability", follow_symlinks=False))
    except OSError:
        return False
