"""What is staged on a node, and who uses it: nothing that a living process has claimed is ever removed.

```
<tier>/cordee-<uid>/staged/
  <key>/<name>            the data, under the name that it has at its source
  <key>.lock              flock: held while it is staged, claimed or removed
  <key>.claims/           a file for each process that uses it: its pid and when it began
```
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import time
from pathlib import Path
from typing import Callable, Iterator

from cordee.core.errors import DataError
from cordee.machine.node_folder import name_of_user
from cordee.machine.node_tiers import free_bytes
from cordee.machine.private import private_folder
from cordee.machine.processes.tree import is_same_process, read_process

# What nobody has claimed for so long goes when something else is staged.
IDLE_S = 24 * 3600.0
_PARTIAL = ".partial"


class StagedSets:
    """The staged data sets of this person on one tier.

    Args:
        tier: a folder in which this person may write.
    """

    def __init__(self, tier: Path) -> None:
        self.root = private_folder(tier, name_of_user()) / "staged"
        self.root.mkdir(mode=0o700, exist_ok=True)

    def folder(self, key: str) -> Path:
        """Return where the data of a key lies once it is whole."""
        return self.root / key

    def partial(self, key: str) -> Path:
        """Return the folder to put it together in, with what a killed process has left there; whoever asks holds the lock."""
        folder = self.root / f"{key}{_PARTIAL}"
        folder.mkdir(exist_ok=True)
        return folder

    @contextlib.contextmanager
    def locked(self, key: str, waits: Callable[[], None] = lambda: None) -> Iterator[None]:
        """Keep all others from staging, claiming or removing this one; waits for them.

        Args:
            waits: called before that, if it must.
        """
        with (self.root / f"{key}.lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                waits()
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def claim(self, key: str, pid: int) -> None:
        """Keep it for as long as a process lives; whoever calls holds the lock.

        Raises:
            DataError: there is no such process.
        """
        process = read_process(pid)
        if process is None:
            raise DataError("no such process can claim it", given=pid, allowed="a process of this node")
        claims = self.root / f"{key}.claims"
        claims.mkdir(exist_ok=True)
        (claims / f"{pid}-{process.start_ticks}").touch()

    def claimed(self, key: str) -> bool:
        """Return whether a process that lives has claimed it; claims of others are forgotten."""
        alive = False
        claims = self.root / f"{key}.claims"
        for claim in sorted(claims.iterdir()) if claims.is_dir() else ():
            pid, _, began = claim.name.partition("-")
            if pid.isdigit() and began.isdigit() and is_same_process(int(pid), int(began)):
                alive = True
            else:
                claim.unlink(missing_ok=True)
        return alive

    def unused_bytes(self) -> int:
        """Return what would be free if all went that nobody has claimed."""
        folders = [self.root / name for key in self._keys() if not self.claimed(key) for name in (key, key + _PARTIAL)]
        return sum(bytes_below(folder) for folder in folders)

    def make_room(self, needed: int, but: str) -> list[str]:
        """Remove what nobody has claimed: what has been idle for a day, and the longest idle ones as long as room is needed.

        Args:
            but: the key that the caller holds the lock of.

        Returns:
            the keys that were removed.
        """
        removed = []
        for key in self._keys():
            idle_s = time.time() - self._used_at(key)
            if key != but and (idle_s >= IDLE_S or needed > free_bytes(self.root)) and self._removed(key):
                removed.append(key)
        return removed

    def _keys(self) -> list[str]:
        """Return the keys of what lies there, the longest idle first."""
        names = {path.name for path in self.root.iterdir() if path.is_dir() and not path.name.endswith(".claims")}
        return sorted({name.removesuffix(_PARTIAL) for name in names}, key=self._used_at)

    def _used_at(self, key: str) -> float:
        for name in (f"{key}.claims", f"{key}.lock", key):
            with contextlib.suppress(OSError):
                return (self.root / name).stat().st_mtime
        return 0.0

    def _removed(self, key: str) -> bool:
        with (self.root / f"{key}.lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                return False  # it is being staged
            if self.claimed(key):
                return False
            for name in (key, f"{key}{_PARTIAL}", f"{key}.claims"):
                shutil.rmtree(self.root / name, ignore_errors=True)
            return True


def bytes_below(path: Path) -> int:
    """Return the bytes of a file, or of all files below a folder; 0 where there is none."""
    if path.is_file():
        return path.stat().st_size
    return sum(os.lstat(os.path.join(below, name)).st_size for below, _, names in os.walk(path) for name in names)
