"""The image of an EDF: whether it can be understood, and its path from the root on where it is one."""

from __future__ import annotations

import os
from pathlib import Path

from cordee.environment.images.reference import ARCHIVE_SCHEMES, LocalPath, read_reference


def absolute_image(image: str, cwd: Path) -> str:
    """Return an image as it was given, a relative path of it from the root on.

    Raises:
        ImageError: it is neither a path nor a reference.
    """
    source = read_reference(image, str(cwd))
    if not isinstance(source, LocalPath):
        return image
    if source.scheme is None:
        return source.path
    # What stands behind a second colon says which of several images is meant, and stays.
    rest = os.path.expanduser(image.strip().partition(":")[2].removeprefix("//"))
    return f"{source.scheme}:{os.path.normpath(cwd / rest)}"


def is_archive(image: str) -> bool:
    """Return whether an image has to be imported from an archive or layout before it can be used."""
    return image.partition(":")[0] in ARCHIVE_SCHEMES
