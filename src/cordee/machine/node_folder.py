"""Where a node's processes leave files for each other: in memory, or else on a disk of the node, where only this user may look.

```
<place>/cordee-<uid>/           private; see `cordee.machine.private`
  <run>/<node>/                 of one agent after the other
    in-use                      flock, shared: held by the agent for as long as it lives, and touched while it works
    run                         a link to the run's folder
```
"""

from __future__ import annotations

import fcntl
import glob
import os
import shutil
import time
from pathlib import Path
from typing import Callable, Iterator, Optional, Sequence

from cordee.machine.private import may_hold_private, private_folder, private_folders

# Nobody comes back to a node later: agents are replaced within a minute or two, and a requeued job begins within six.
_ABANDONED_S = 1800.0
IN_USE, RUN = "in-use", "run"
_TRIES = 100


def name_of_user() -> str:
    """Return the name of this user's folder in each of `memory_places`."""
    return f"cordee-{os.geteuid()}"


def memory_places() -> list[Path]:
    """Return the places that this process may use, the best first: /dev/shm, $TMPDIR, /tmp."""
    places = ["/dev/shm", os.environ.get("TMPDIR") or "/tmp", "/tmp"]
    found = [Path(place) for place in dict.fromkeys(places) if may_hold_private(Path(place))]
    return found or [Path("/tmp")]


def folders_of(run: str, node: str, beside: Optional[Path] = None) -> Iterator[Path]:
    """Yield the folders that agents have made for a run on this node: nobody but this user can have put anything there.

    Args:
        beside: one more place to look in, where it may hold private folders.
    """
    more = [beside] if beside is not None and may_hold_private(beside) else []
    for place in dict.fromkeys([*more, *memory_places()]):
        for parent in private_folders(place, name_of_user()):
            folder = parent / run / node
            if folder.is_dir():
                yield folder


class NodeFolder:
    """The folder of a run on this node in one of `memory_places`, kept from being swept as long as this lives.

    Args:
        place: one of them.
        run, node: whose folder.

    Attributes:
        path: of the folder.

    Raises:
        OSError: it cannot be made there.
    """

    def __init__(self, place: Path, run: str, node: str) -> None:
        self._place, self._run, self._node = place, run, node
        self._lock: Optional[int] = None
        self.path = place
        self.renew()

    def renew(self) -> None:
        """Make the folder again if somebody has removed it, as systemd does with a user's files at logout.

        Raises:
            OSError: it cannot be made.
        """
        if self._lock is not None and os.fstat(self._lock).st_nlink:
            return
        self.release()
        for _ in range(_TRIES):
            self.path = private_folder(self._place, name_of_user()) / self._run / self._node
            try:
                for folder in (self.path.parent, self.path):
                    folder.mkdir(mode=0o700, exist_ok=True)
                lock = os.open(self.path / IN_USE, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            except FileNotFoundError:  # somebody sweeps here
                continue
            fcntl.flock(lock, fcntl.LOCK_SH)
            if os.fstat(lock).st_nlink:
                self._lock = lock
                return
            os.close(lock)
        raise OSError(0, "the folder vanishes again and again", str(self.path))

    def touch(self) -> None:
        """Say that the folder is in use now."""
        if self._lock is not None:
            os.utime(self._lock)

    def release(self) -> None:
        """Leave the folder to whoever comes next."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def remove(self) -> None:
        """Delete the folder for good."""
        self.release()
        remove_folder(self.path)


def sweep_abandoned(
    older_s: float = _ABANDONED_S,
    places: Sequence[Path] = (),
    may_go: Callable[[Path, float], bool] = lambda folder, unused_s: True,
) -> list[Path]:
    """Remove what runs have left on this node whose agents were killed; return what was removed.

    Args:
        older_s: since when nobody must have used it.
        places: where to look; none: in `memory_places`.
        may_go: asked about each folder that nobody has used for so many seconds, right before it is removed.
    """
    swept = []
    for place in places or memory_places():
        for parent in private_folders(place, name_of_user()):
            # Others remove theirs meanwhile, which `Path.glob` does not take.
            inside = os.path.join(glob.escape(str(parent)), "*")
            # A supervisor's folder is hidden from `*`.
            names = [name for node in ("*", ".*") for name in glob.glob(os.path.join(inside, node, IN_USE))]
            for name in sorted(names):
                if _sweep(Path(name), older_s, may_go):
                    swept.append(Path(name).parent)
    return swept


def _sweep(lock: Path, older_s: float, may_go: Callable[[Path, float], bool]) -> bool:
    """Remove the folder of a lock that nobody holds or has touched of late; return whether it is gone."""
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        unused_s = time.time() - os.fstat(descriptor).st_mtime
        if unused_s < older_s or not may_go(lock.parent, unused_s):
            return False
        remove_folder(lock.parent)
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)


def remove_folder(folder: Path) -> None:
    """Remove the folder of a run on this node, and those above it that it leaves empty."""
    shutil.rmtree(folder, ignore_errors=True)
    for parent in (folder.parent, folder.parent.parent):
        try:
            parent.rmdir()
        except OSError:
            return
