"""One file of text as origin: for `--as tokens`, where every line of JSON is a document."""

from __future__ import annotations

import os
from typing import Any

from cordee.core.errors import DataError
from cordee.systems.data.node.shards.entries import Listing, PackedEntry
from cordee.systems.data.pack._base import SampleOrigin


class TextFileOrigin(SampleOrigin):
    """A single file.

    Args:
        path: the file.
    """

    def __init__(self, path: str) -> None:
        self._path = os.path.abspath(path)
        self.name = os.path.basename(path).partition(".")[0] or "data"

    def listing(self) -> Listing:
        """Return the one file."""
        try:
            about = os.stat(self._path)
        except OSError as error:
            raise DataError(f"the file cannot be read: {error.strerror}", given=self._path) from None
        path = os.fsencode(self._path)
        return Listing([PackedEntry(os.path.basename(path), about.st_size, path, 0, about.st_mtime_ns)])


def open_origin(address: str, options: dict[str, Any]) -> TextFileOrigin:
    """Return the origin of a file of text; it has no options."""
    return TextFileOrigin(address)
