"""Ownership is an epoch: whoever makes the next numbered folder owns the run, and all older owners stand down."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any, Callable, Optional

from cordee.errors import OwnershipError, RunFolderError
from cordee.node.identity import alive_here, identity
from cordee.runs.folder import write_atomically

_UNWRITTEN_S = 2.0


class Ownership:
    """A claim on a numbered folder under `parent`.

    Args:
        parent: `control/epochs` for supervisors, `control/keepers` for keepers.
        alive: answers whether an earlier owner still runs; under a scheduler this asks the scheduler.
        who: describes this process to those who come later.
    """

    def __init__(
        self,
        parent: Path,
        alive: Callable[[dict[str, Any]], bool] = alive_here,
        who: Callable[[], dict[str, Any]] = identity,
    ) -> None:
        self._parent = parent
        self._alive = alive
        self._who = who
        self.epoch = 0

    def claim(self) -> int:
        """Take the next epoch and return it.

        Raises:
            OwnershipError: an earlier owner still runs, or somebody else claimed at the same moment.
            RunFolderError: the folder cannot be written.
        """
        try:
            self._parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            newest = self.newest()
            if newest:
                owner = self.owner(newest)
                if owner is not None and self._alive(owner):
                    raise OwnershipError(
                        f"process {owner['pid']} on {owner['host']} owns this run already (epoch {newest})",
                        given=str(self._parent.parent.parent),
                        next="leave it to that process; `cordee cancel` ends the run",
                    )
            os.mkdir(self._parent / str(newest + 1), 0o700)
        except FileExistsError:
            raise OwnershipError(
                "another process claimed this run at the same moment", next="leave it to that one"
            ) from None
        except OSError as error:
            raise RunFolderError(
                f"cannot claim the run: {error.strerror}",
                given=str(self._parent),
                next="make room or restore the folder, then `cordee resume` the run",
            ) from error
        self.epoch = newest + 1
        write_atomically(self._parent / str(self.epoch) / "owner.json", json.dumps(self._who()))
        return self.epoch

    def current(self) -> bool:
        """Return whether no newer owner has come; a folder that vanished counts as lost."""
        return self.newest() == self.epoch

    def newest(self) -> int:
        """Return the newest epoch, 0 when there is none."""
        try:
            return max((int(name) for name in os.listdir(self._parent) if name.isdigit()), default=0)
        except OSError:
            return 0

    def owner(self, epoch: int) -> Optional[dict[str, Any]]:
        """Return the identity of an epoch's owner; None when it died before it wrote one."""
        path = self._parent / str(epoch) / "owner.json"
        deadline = time.monotonic() + _UNWRITTEN_S
        while True:
            try:
                owner: dict[str, Any] = json.loads(path.read_text())
                return owner
            except (OSError, ValueError):
                if time.monotonic() > deadline:
                    return None
                time.sleep(0.02)
