"""What a packing knows of itself on disk: what it packs, and which shards are whole. A killed one goes on from there."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

from cordee.core.errors import CorruptDataError, DataError, UsageError
from cordee.systems.data.node.shards.index import ShardIndex, open_index

_SCHEMA = "cordee.packing/1"
_LOCK_WAIT_S = 5.0


class PackState:
    """The folder of one packing; only one process at a time has it open.

    Args:
        folder: is made if it is not there.
        about: what is packed and how: a second call with something else is refused.
        restart: forget what an earlier call has begun.

    Raises:
        UsageError: another source or other options are being packed there. DataError: another process packs there now.
    """

    def __init__(self, folder: Path, about: dict[str, Any], restart: bool) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = _locked(folder / "lock")
        try:
            self.fresh = self._begin(folder, {"schema": _SCHEMA, **about}, restart)
        except BaseException:
            self.close()
            raise

    def _begin(self, folder: Path, about: dict[str, Any], restart: bool) -> bool:
        """Say whether nothing of an earlier call counts, and remember what is packed now."""
        plan = folder / "plan.json"
        known = _read(plan)
        # An index of shards that have changed since loses nothing by beginning anew.
        harmless = known is not None and known.get("target") == about["target"] == "index"
        if known is not None and known != about and not restart and not harmless:
            raise UsageError(
                f"something else is being packed there: {differences(known, about)}",
                given=str(folder.parent),
                allowed="the same source, unchanged, with the same options",
                next="repeat the first command to continue with it, or begin anew: --restart",
            )
        fresh = known is None or known != about or restart
        if fresh:
            for path in folder.iterdir():
                if path.name != "lock":
                    path.unlink()
            write_whole(plan, json.dumps(about))
        return fresh

    def part(self, shard: int) -> Path:
        """Return where the index of one shard is kept."""
        return self.folder / f"{shard:06d}.index"

    def partial(self, shard: int) -> Path:
        """Return where a shard is written."""
        return self.folder / f"{shard:06d}.tar.partial"

    def whole(self, shard: int, sizes: dict[str, int]) -> bool:
        """Say whether a shard is done: its index is there, and the shard with the size that it says."""
        part = self.open_part(shard)
        return part is not None and sizes.get(part.shards[0].name) == part.shards[0].bytes

    def open_part(self, shard: int) -> ShardIndex | None:
        """Return the index of a whole shard; None where there is none that can be used."""
        if not self.part(shard).exists():
            return None
        try:
            return open_index(self.part(shard))
        except CorruptDataError:
            return None

    def note_left_out(self, shard: int, names: list[str]) -> None:
        """Keep what was left out of a shard, before its index says that it is whole."""
        path = self.folder / f"{shard:06d}.left-out.json"
        if names:
            write_whole(path, json.dumps(names))
        else:
            path.unlink(missing_ok=True)

    def left_out(self, shard: int) -> list[str]:
        """Return what was left out of a shard."""
        names: list[str] = _read(self.folder / f"{shard:06d}.left-out.json") or []
        return names

    def remove(self) -> None:
        """Remove the folder: all is done."""
        shutil.rmtree(self.folder)
        self.close()

    def close(self) -> None:
        """Let others pack there."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


_WORDS = {
    "fingerprint": "another source, or it has changed",
    "shard_bytes": "another --shard-size",
    "name": "another --name",
    "target": "another format (--as)",
    "tokenizer": "another --tokenizer",
    "text": "another --text",
    "skip_unreadable": "with or without --skip-unreadable",
}


def differences(known: dict[str, Any], about: dict[str, Any]) -> str:
    """Say in what two packings differ."""
    keys = dict.fromkeys((*about, *(key for key in known if key in _WORDS)))
    return ", ".join(_WORDS.get(key, key) for key in keys if known.get(key) != about.get(key))


def write_whole(path: Path, text: str) -> None:
    """Write a small file durably, whole or not at all."""
    partial = path.with_name(path.name + ".partial")
    with partial.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    partial.rename(path)


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError:
        return None


def _locked(path: Path) -> int:
    """Return a descriptor that holds the lock; workers that outlive a killed parent let go of it soon."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    deadline = time.monotonic() + _LOCK_WAIT_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return descriptor
        except BlockingIOError:
            if time.monotonic() > deadline:
                os.close(descriptor)
                raise DataError(
                    "another process is packing there", given=str(path.parent.parent), next="wait until it has ended"
                ) from None
            time.sleep(0.05)
        except OSError:  # a file system without locks
            return descriptor
