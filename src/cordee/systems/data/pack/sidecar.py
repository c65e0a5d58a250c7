"""An image has no index of ours: what it was made of lies beside it, as NAME.packed.json.

So a job script may call `cordee data pack` every time: what is there already is not made again.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from cordee.core.errors import UsageError
from cordee.systems.data.pack._base import PackResult
from cordee.systems.data.pack.already_packed import ANEW, known_record, refuse_other, written_record
from cordee.systems.data.pack.state import write_whole


class Sidecar:
    """The record of what lies at `path`, a file or a folder.

    Args:
        about: what would be packed, and how.
    """

    def __init__(self, path: str, about: dict[str, Any]) -> None:
        self._path, self._about = path, about
        self._record = Path(path + ".packed.json")

    def packed(self) -> PackResult:
        """Return what lies there, where it is what would be packed.

        Raises:
            UsageError: it is something else, or not whole any more.
        """
        known = known_record(_read(self._record))
        refuse_other(known, self._about, self._path)
        there = _extent(self._path)
        if there != known["extent"]:
            raise UsageError(
                "what is packed there is not whole any more",
                given=f"{self._path}: {there['bytes']} bytes in {there['files']} files",
                allowed=f"{known['extent']['bytes']} bytes in {known['extent']['files']} files",
                next=f"copy it there again, or {ANEW}",
            )
        return PackResult(
            path=self._path,
            index=None,
            shards=1,
            samples=known["samples"],
            bytes=known["bytes"],
            seconds=0.0,
            resumed_shards=1,
            left_out=known["left_out"],
            already=True,
            packed_s=self._record.stat().st_mtime,
        )

    def forget(self) -> None:
        """Remove the record: what lies there will be replaced."""
        self._record.unlink(missing_ok=True)

    def keep(self, packed: PackResult) -> PackResult:
        """Write down what was made, and return it."""
        made = {"samples": packed.samples, "bytes": packed.bytes, "left_out": packed.left_out}
        write_whole(self._record, written_record({**self._about, **made, "extent": _extent(self._path)}))
        return packed


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _extent(path: str) -> dict[str, int]:
    """Return how many files there are, and their bytes."""
    if os.path.isfile(path):
        return {"files": 1, "bytes": os.path.getsize(path)}
    sizes = [os.path.getsize(os.path.join(folder, name)) for folder, _, names in os.walk(path) for name in names]
    return {"files": len(sizes), "bytes": sum(sizes)}
