"""A folder as origin: every regular file below it; links are not followed unless asked."""

from __future__ import annotations

import os
from typing import Any

from cordee.systems.data.node.shards.entries import Listing
from cordee.systems.data.node.shards.folder import list_folder
from cordee.systems.data.pack._base import SampleOrigin


class FolderOrigin(SampleOrigin):
    """All regular files below a folder.

    Args:
        path: the folder.
        follow: pack what symbolic links point to, also outside; loops are left out.
    """

    def __init__(self, path: str, follow: bool = False) -> None:
        self._folder = os.fsencode(os.path.abspath(path))
        self.root = self._folder
        self.name = os.path.basename(os.path.abspath(path)) or "data"
        self._follow = follow

    def listing(self) -> Listing:
        """Return every file, empty folder, and what cannot or should not be packed."""
        return list_folder(self._folder, self._follow)


def open_origin(address: str, options: dict[str, Any]) -> FolderOrigin:
    """Return the origin of a folder; option `follow`: follow links."""
    return FolderOrigin(address, follow=bool(options.get("follow")))
