"""The saves that lie on this node: those of its own ranks, and copies of a neighbour's.

```
<folder>/<save>/<rank>/      the files of one rank, and `part.json`, which describes them
```
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import json
import os
import shutil
from pathlib import Path
from typing import Any, Callable, Collection, Iterator, Mapping, NamedTuple, Optional

from cordee.core.errors import CheckpointError
from cordee.core.units import format_size
from cordee.machine.node_tiers import tiers

_PART = "part.json"
_PARTIAL = ".tmp"
_LOCK = ".lock"


class NodeTier(NamedTuple):
    """Where on a node saves are kept first: the kind of place, its folder, and the paths of the profile's own disks of nodes."""

    kind: str
    folder: str
    declared: tuple[str, ...]

    def lacks(self, size: int) -> str:
        """Return why so many bytes do not fit there, empty where they do."""
        there = (one.room_bytes for one in tiers(self.declared) if self.folder.startswith(f"{one.folder}/"))
        room = max(there, default=0)
        if size <= room:
            return ""
        return f"{format_size(size)} do not fit on {self.folder}, where {format_size(max(0, room))} may be used"


class KeptPart(NamedTuple):
    """One rank's part of a save.

    Attributes:
        save: what the save is called.
        sizes, sums: bytes and CRC-32 of its files, by name.
        completion, place: of rank 0's alone: what completes the checkpoint, as in `WriteRequest`.
    """

    save: str
    rank: int
    sizes: dict[str, int]
    sums: dict[str, int]
    completion: Optional[list[Any]] = None
    place: Optional[dict[str, Any]] = None

    @property
    def bytes(self) -> int:
        """Of all its files."""
        return sum(self.sizes.values())


class KeptSaves:
    """The saves of one run on this node.

    Args:
        folder: where they lie.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def begin(self, save: str, rank: int, sizes: Mapping[str, int], lacks: Callable[[int], str]) -> Path:
        """Return a folder with room for a rank's files, which `finish` gives its name.

        The room is taken before anybody else on this node may look how much is left.

        Args:
            sizes: bytes of the files, by name.
            lacks: returns why so many bytes do not fit there, empty where they do.

        Raises:
            CheckpointError: they do not fit.
            OSError: the folder cannot be made, or the room not be taken.
        """
        partial = self._path(save, f"{rank}{_PARTIAL}")
        shutil.rmtree(partial, ignore_errors=True)
        self.folder.mkdir(parents=True, exist_ok=True)
        with open(self.folder / _LOCK, "wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            lack = lacks(sum(sizes.values()))
            if lack:
                raise CheckpointError(lack)
            partial.mkdir(parents=True)
            try:
                for name, size in sizes.items():
                    with open(partial / name, "wb") as file:
                        if size:
                            os.posix_fallocate(file.fileno(), 0, size)
            except OSError:
                shutil.rmtree(partial, ignore_errors=True)
                raise
        return partial

    def finish(self, part: KeptPart) -> Path:
        """Say that a rank's files are all there; return where they lie."""
        partial, target = self._path(part.save, f"{part.rank}{_PARTIAL}"), self._path(part.save, str(part.rank))
        (partial / _PART).write_text(json.dumps(part))
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(target)
        os.rename(partial, target)
        return target

    def parts(self) -> Iterator[KeptPart]:
        """Yield what is there in full."""
        for path in sorted(self._there(f"*/*/{_PART}")):
            if not path.parent.name.endswith(_PARTIAL):
                with contextlib.suppress(OSError, ValueError, TypeError):
                    yield KeptPart(*json.loads(path.read_text()))

    def file(self, save: str, rank: int, name: str) -> Path:
        """Return where a file of a part lies.

        Raises:
            CheckpointError: the name leads elsewhere.
        """
        return self._path(save, str(rank), name)

    def forget(self, rank: int, but: Collection[str]) -> None:
        """Remove the parts of a rank, but for those of some saves."""
        for path in self._there(f"*/{int(rank)}"):
            if path.parent.name not in but:
                with contextlib.suppress(OSError):
                    (path / _PART).unlink()  # first, so that it is not there by half
                shutil.rmtree(path, ignore_errors=True)
                with contextlib.suppress(OSError):
                    path.parent.rmdir()

    def clear(self) -> None:
        """Remove all of them."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _there(self, pattern: str) -> Iterator[Path]:
        """Yield what fits a pattern; a folder that another rank removes meanwhile is passed over, as pathlib's glob does not."""
        return map(Path, glob.iglob(os.path.join(glob.escape(str(self.folder)), pattern)))

    def _path(self, *names: str) -> Path:
        if any(not name or name in (".", "..") or "/" in name or "\0" in name for name in names):
            raise CheckpointError("this is no part of a checkpoint on a node", given="/".join(names))
        return self.folder.joinpath(*names)
