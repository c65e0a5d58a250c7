"""An image that is a folder: the root of a system, as unpacked."""

from __future__ import annotations

import os
import stat

from cordee.machine.foreign_files import read_regular, regular_below
from cordee.systems.scan.images.found import ELF, ImageFinder, is_wanted, may_be_model
from cordee.systems.scan.node.scanner import Scanner

_MOST_NAMES = 20_000_000
_TEXTS_BYTES = 512 << 20


def look_at_root(root: str, finder: ImageFinder, scanner: Scanner) -> None:
    """Look at all names below a root; no link is followed, and nothing is opened but regular files.

    Args:
        root: a folder.
        finder: takes what is found.
        scanner: looks at what may be a model.
    """
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
            if may_be_model(inside, about.st_size):
                _model(path, root, inside, finder, scanner)
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


def _model(path: str, root: str, inside: str, finder: ImageFinder, scanner: Scanner) -> None:
    try:
        descriptor = regular_below(root)(path, os.O_RDONLY)
    except OSError:
        return  # said where its text is read
    try:
        if os.pread(descriptor, 4, 0) != ELF:
            verdict = scanner.scan_descriptor(descriptor, path)
            where = (f"/{inside}/{sight.where}".rstrip("/") for sight in verdict.sights)
            if verdict.kinds:
                finder.keep(sight._replace(where=place) for sight, place in zip(verdict.sights, where, strict=True))
    finally:
        os.close(descriptor)


def _is_capable(path: str) -> bool:
    try:
        return bool(os.getxattr(path, "security.capability", follow_symlinks=False))
    except OSError:
        return False
