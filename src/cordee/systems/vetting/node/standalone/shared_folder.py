"""The folder in which the tasks of one vetting find each other, on the file system that they share."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from pathlib import Path
from typing import Any, Optional, Union

from cordee import wire
from cordee.core.errors import CordeeError, WireError
from cordee.runs.folder import write_atomically


class SharedFolder:
    """`.cordee-vet-<identity>` below the folder of results: who conducts (0600), under which epoch, and what was decided.

    Args:
        folder: where the results go; all tasks see it.
        identity: of the vetting.
    """

    def __init__(self, folder: Union[str, Path], identity: str) -> None:
        self.root = Path(folder) / f".cordee-vet-{identity}"

    def open(self) -> None:
        """Make the folder.

        Raises:
            CordeeError: it cannot be made.
        """
        try:
            self.root.parent.mkdir(parents=True, exist_ok=True)
            self.root.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise CordeeError(
                f"cannot make the folder in which the tasks meet: {error.strerror}",
                given=str(self.root),
                allowed="a folder that all nodes share and that you may write",
                next="choose one with --dir",
            ) from error

    def rendezvous(self) -> Optional[wire.Rendezvous]:
        """Return where whoever conducts listens; None when nobody has said so yet, or it is not to be trusted."""
        with contextlib.suppress(OSError):
            os.listdir(self.root)  # a network file system may remember for a while that a file was not there
        try:
            return wire.read_rendezvous(self.root / "rendezvous.json")
        except (OSError, WireError):
            return None

    def claim(self, epoch: int) -> bool:
        """Take an epoch for oneself; False when another task has it."""
        try:
            (self.root / f"epoch-{epoch}").mkdir(mode=0o700)
        except FileExistsError:
            return False
        return True

    def epoch(self) -> int:
        """Return the newest epoch that was claimed, 0 when none was."""
        try:
            names = os.listdir(self.root)
        except OSError:
            return 0
        return max([int(name[6:]) for name in names if name.startswith("epoch-") and name[6:].isdigit()], default=0)

    def announce(self, server: wire.Server, epoch: int) -> None:
        """Say where to find the one who conducts.

        Raises:
            WireError: the folder cannot be written.
        """
        wire.write_rendezvous(self.root / "rendezvous.json", server.address, server.port, epoch, server.token)

    def keep(self, protocol: dict[str, Any]) -> None:
        """Leave the protocol for whoever may have to take over."""
        write_atomically(self.root / "protocol.json", json.dumps(protocol))

    def protocol(self) -> Optional[dict[str, Any]]:
        """Return the protocol that an earlier conductor has left, if there is one."""
        try:
            protocol = json.loads((self.root / "protocol.json").read_text())
        except (OSError, ValueError):
            return None
        return protocol if isinstance(protocol, dict) else None

    def decide(self, code: int) -> bool:
        """Fix the exit code of all tasks; False when another task has done so already, and may have left with the folder."""
        try:
            descriptor = os.open(self.root / "decision", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with open(descriptor, "w") as file:
                file.write(f"{code}\n")
        except OSError:
            return False
        return True

    def decision(self, since: float = 0.0) -> Optional[int]:
        """Return the exit code that was fixed, None as long as none was since a moment (UTC epoch seconds)."""
        path = self.root / "decision"
        try:
            if os.stat(path).st_mtime < since:
                return None
            text = path.read_text()
        except OSError:
            return None
        return int(text) if text.endswith("\n") and text.strip().isdigit() else None

    def forget(self) -> None:
        """Remove what an earlier vetting of the same name may have left."""
        for name in ("decision", "protocol.json"):
            with contextlib.suppress(OSError):
                os.unlink(self.root / name)

    def clear(self) -> None:
        """Remove the folder and all that is in it."""
        shutil.rmtree(self.root, ignore_errors=True)
