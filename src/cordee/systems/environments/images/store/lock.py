"""A lock that holds on network file systems and does not outlive its holder: a folder made by mkdir, with a heartbeat.

A lock is stale when its holder was a process of this machine (of this boot and this set of process ids) that is gone, or when
its heartbeat, by the clock of the file system, has stopped for `STALE_S`. Two processes that find a lock stale at the same
moment may both take it: what it guards must be sound without it.
"""

from __future__ import annotations

import errno
import os
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

HEARTBEAT_S = 5.0
STALE_S = 60.0
_POLL_S = 0.05


def identity() -> str:
    """Return what tells this process from all others: host, boot and set of process ids, process id, start."""
    return f"{_here()}-{os.getpid()}-{_start(os.getpid())}"


def is_gone(text: str) -> bool:
    """Return whether an `identity` is that of a process of this machine that has ended."""
    where, _, start = text.rpartition("-")
    where, _, pid = where.rpartition("-")
    return where == _here() and pid.isdigit() and _start(int(pid)) != start


def _here() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()[:8]
        ids = os.readlink("/proc/self/ns/pid").strip("pid:[]")
    except OSError:
        boot, ids = "0", "0"
    return f"{socket.gethostname().replace('/', '_')}-{boot}-{ids}"


def _start(pid: int) -> str:
    """Return when a process began, in ticks since boot; empty: there is none."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in ("Z", "X") else fields[19]


def owner_of(path: Path) -> str:
    """Return the identity of who holds a lock; empty: nobody."""
    try:
        return next(iter(os.listdir(path)), "")
    except OSError:
        return ""


def release(path: Path, owner: str) -> None:
    """Take a lock away if it is that owner's."""
    aside = Path(tempfile.mkdtemp(prefix=f".{identity()}-", dir=path.parent))
    try:
        path.rename(aside / "lock")
        if os.listdir(aside / "lock") != [owner]:
            (aside / "lock").rename(path)  # another has taken it meanwhile
    except OSError:
        pass  # it has gone, or another stands there now
    shutil.rmtree(aside, ignore_errors=True)


class FolderLock:
    """Held inside `with`; waits for as long as its holder lives.

    Args:
        path: the folder that is the lock; the one above it exists.
        say: told once who holds it, when there is a wait.
    """

    def __init__(self, path: Path, say: Callable[[str], None] = lambda text: None) -> None:
        self._path, self._say = path, say
        self._done = threading.Event()
        self._beating = threading.Thread(target=self._beat, daemon=True)

    def __enter__(self) -> FolderLock:
        told = False
        while not self._take():
            owner = owner_of(self._path)
            if owner and self._is_stale(owner):
                release(self._path, owner)
            elif owner and not told:
                self._say(f"another process does this now ({owner}); waiting for it")
                told = True
            time.sleep(_POLL_S)
        self._beating.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._beating.join()
        release(self._path, identity())

    def _take(self) -> bool:
        """Make a folder with its owner in it and give it the lock's name; return whether that was free."""
        made = Path(tempfile.mkdtemp(prefix=f".{identity()}-", dir=self._path.parent))
        made.chmod(0o755)  # who else uses the store may see whose it is
        (made / identity()).touch()
        try:
            made.rename(self._path)
            return True
        except OSError as error:
            shutil.rmtree(made, ignore_errors=True)
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            return False

    def _is_stale(self, owner: str) -> bool:
        """Return whether the holder is gone, or has been silent for too long by the clock of the file system."""
        if is_gone(owner):
            return True
        try:
            with tempfile.NamedTemporaryFile(dir=self._path.parent, prefix=f".{identity()}-") as now:
                return os.fstat(now.fileno()).st_mtime - (self._path / owner).stat().st_mtime > STALE_S
        except FileNotFoundError:
            return False

    def _beat(self) -> None:
        while not self._done.wait(HEARTBEAT_S):
            try:
                os.utime(self._path / identity())
            except OSError:
                return
