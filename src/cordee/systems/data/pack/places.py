"""Where whole shards go: a folder, or what `PLACES` names by the beginning of an address."""

from __future__ import annotations

import hashlib
import os
from importlib import import_module
from pathlib import Path

from cordee.core.errors import UsageError
from cordee.systems.data.pack._base import PackTarget

# By the beginning of an address: the module's `open_place(address) -> Place`.
PLACES: dict[str, str] = {"s3://": "cordee.systems.data.pack.origins.objects"}
WORK = ".packing"


class FolderPlace(PackTarget):
    """A local folder; shards are made on the same file system and renamed."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)

    def sizes(self) -> dict[str, int]:
        found = {}
        for folder, folders, names in os.walk(self._folder):
            folders[:] = [name for name in folders if not name.startswith(WORK)]
            paths = [Path(folder, name) for name in names]
            found.update({str(path.relative_to(self._folder)): path.stat().st_size for path in paths})
        return found

    def take(self, partial: str, name: str) -> None:
        path = self._folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        os.rename(partial, path)
        sync(path.parent)

    def remove(self, name: str) -> None:
        (self._folder / name).unlink(missing_ok=True)


def open_place(address: str) -> PackTarget:
    """Return the place of a path or address.

    Raises:
        UsageError: nothing writes to such an address.
    """
    if "://" not in address:
        return FolderPlace(address)
    for beginning, module in PLACES.items():
        if address.startswith(beginning):
            place: PackTarget = import_module(module).open_place(address)
            return place
    raise UsageError("nothing is packed to such an address", given=address, allowed=["a folder", *PLACES])


def refuse_file(to: str) -> None:
    """Refuse to make a folder where a file is.

    Raises:
        UsageError: there is one.
    """
    if "://" not in to and os.path.lexists(to) and not os.path.isdir(to):
        raise UsageError(
            "this is a file, and what is written needs a folder",
            given=to,
            allowed="a new or empty folder",
            next="choose another place with --to",
        )


def work_folder(address: str) -> Path:
    """Return where a packing keeps its state and shards that are not whole: in the target folder, or in the cache."""
    if "://" not in address:
        return Path(address) / WORK
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "cordee" / "packing" / hashlib.sha256(address.rstrip("/").encode()).hexdigest()[:16]


def sync(path: str | Path) -> None:
    """Wait until the disk has a file, or what was renamed in a folder."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
