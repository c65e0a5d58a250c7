"""Ownership is an epoch: whoever makes the next numbered folder owns the run, and all older owners stand down."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Callable, Optional

from cordee.control.identity import alive_here, identity
from cordee.core.clock import monotonic, pause
from cordee.core.errors import OwnershipError, RunFolderError
from cordee.runs.disk import DISK, Disk
from cordee.runs.folder import say

_UNWRITTEN_S = 2.0
_LOOK_S, _MOST_LOOK_S = 0.02, 0.5
_END = "end.json"


class Ownership:
    """A claim on a numbered folder under `parent`.

    Args:
        parent: `control/epochs` for supervisors, `control/keepers` for keepers.
        alive: answers whether an earlier owner still runs; under a scheduler this asks the scheduler.
        who: describes this process to those who come later.
        disk: where the folder lies.
    """

    def __init__(
        self,
        parent: Path,
        alive: Callable[[dict[str, Any]], bool] = alive_here,
        who: Callable[[], dict[str, Any]] = identity,
        disk: Disk = DISK,
    ) -> None:
        self._parent = parent
        self._alive = alive
        self._who = who
        self._disk = disk
        self.epoch = 0
        self._unseen = False

    def claim(self) -> int:
        """Take the next epoch and return it.

        Raises:
            OwnershipError: an earlier owner still runs, or somebody else claimed at the same moment.
            RunFolderError: the folder cannot be written.
        """
        try:
            self._make_parent()
            newest = self._newest()
            owner = self.owner(newest) if newest else None
        except OSError as error:
            raise self._refused(error) from error
        if owner is not None and self._alive(owner):
            raise OwnershipError(
                f"process {owner['pid']} on {owner['host']} owns this run already (epoch {newest})",
                given=str(self._parent.parent.parent),
                next="leave it to that process; `cordee cancel` ends the run",
            )
        try:
            self._disk.mkdir(self._parent / str(newest + 1))
        except FileExistsError:
            raise OwnershipError(
                "another process claimed this run at the same moment", next="leave it to that one"
            ) from None
        except OSError as error:
            raise self._refused(error) from error
        try:
            self._sign(self._parent / str(newest + 1) / "owner.json")
        except OSError as error:
            raise self._refused(error) from error
        self.epoch = newest + 1
        return self.epoch

    def decide(self, end: dict[str, Any]) -> str:
        """Write how the run ends, for whoever claims it from now on, and return whose it is then, as `look` does.

        Who has claimed it before is seen here, and who claims it later reads this: one of the two always knows of the other.
        """
        path = self._parent / str(self.epoch) / _END
        beside = path.with_name(f".{_END}")
        try:
            self._write(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, end)
            self._disk.replace(beside, path)
        except FileNotFoundError:
            return "gone"
        except OSError:
            return "unseen"
        return self.look()

    def decided(self, since: int) -> Optional[dict[str, Any]]:
        """Return how an epoch before this one has decided to end the run, none older than `since`; None when none has.

        Raises:
            RunFolderError: it cannot be read.
        """
        for epoch in range(self.epoch - 1, max(since, 1) - 1, -1):
            try:
                end: dict[str, Any] = json.loads(self._disk.read(self._parent / str(epoch) / _END))
            except FileNotFoundError:
                continue
            except OSError as error:
                raise self._refused(error) from error
            return end
        return None

    def _sign(self, path: Path) -> None:
        """Write who owns the folder that was just made; who reads it meanwhile waits for the whole."""
        self._write(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, self._who())

    def _write(self, path: Path, flags: int, document: dict[str, Any]) -> None:
        descriptor = self._disk.open(path, flags)
        try:
            view = memoryview(json.dumps(document).encode())
            while view:
                view = view[self._disk.write(descriptor, view) :]
            self._disk.fsync(descriptor)
        finally:
            self._disk.close(descriptor)

    def _make_parent(self) -> None:
        for folder in (self._parent.parent, self._parent):
            try:
                self._disk.mkdir(folder)
            except FileExistsError:
                continue

    def _refused(self, error: OSError) -> RunFolderError:
        return RunFolderError(
            f"cannot claim the run: {error.strerror}",
            given=str(self._parent),
            next="make room or restore the folder, then `cordee resume` the run",
        )

    def look(self) -> str:
        """Return whose the run is now: "ours"; "newer", somebody's who came later and can be seen; "gone" when the claim was
        deleted; "unseen" while the file system does not say, which is no reason to stand down.
        """
        try:
            newest = self._newest()
        except OSError as error:
            if not self._unseen:
                say(f"cordee: cannot see who owns the run, continuing: {self._parent}: {error.strerror}")
            self._unseen = True
            return "unseen"
        self._unseen = False
        return "ours" if newest == self.epoch else "newer" if newest > self.epoch else "gone"

    def newest(self) -> Optional[int]:
        """Return the newest epoch, 0 when there is none, None while the file system does not say."""
        try:
            return self._newest()
        except OSError:
            return None

    def owner(self, epoch: int) -> Optional[dict[str, Any]]:
        """Return the identity of an epoch's owner; waits a moment for one who is about to write it, None when it died before it did.

        Raises:
            OSError: it cannot be read.
        """
        path = self._parent / str(epoch) / "owner.json"
        deadline, pause_s = monotonic() + _UNWRITTEN_S, _LOOK_S
        while True:
            try:
                owner: dict[str, Any] = json.loads(self._disk.read(path))
                return owner
            except (FileNotFoundError, ValueError):
                left_s = deadline - monotonic()
                if left_s <= 0:
                    return None
            pause(min(pause_s, left_s))
            pause_s = min(2 * pause_s, _MOST_LOOK_S)

    def _newest(self) -> int:
        try:
            return max((int(name) for name in self._disk.listdir(self._parent) if name.isdigit()), default=0)
        except FileNotFoundError:
            return 0
