"""Where images are kept."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from cordee.spec.places import cache_folder


def store_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of images: `EDF_IMAGESTORE`, else `$SCRATCH/.edf_imagestore`, else below the person's cache."""
    given, scratch = environ.get("EDF_IMAGESTORE", ""), environ.get("SCRATCH", "")
    if given:
        return Path(os.path.expanduser(given)).absolute()
    if os.path.isabs(scratch):
        return Path(scratch) / ".edf_imagestore"
    return cache_folder(environ) / "images"


class Store:
    """The images of one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
