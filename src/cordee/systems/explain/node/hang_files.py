"""What agents collected of hangs, on its way into the run's folder: bounded, and named by us alone. Used in a lane."""

from __future__ import annotations

import json
import os
import re
from typing import Any, Optional

from cordee.core.errors import RunFolderError
from cordee.runs.folder import RunFolder, write_atomically

_NAME = re.compile(r"(rank-\d{1,7}\.(json|stacks|flight)|(node|ras|inspector)-[A-Za-z0-9_.-]{1,200})")
_DUMP = re.compile(r"rank-(\d{1,7})\.flight")
MOST_BYTES = 256 << 20
_MOST_FILES = 200_000


class HangFiles:
    """The files of one hang: RUN/hangs/N, and dumps in RUN/flight/attempt-A, where `cordee flight RUN` finds them.

    Args:
        run: the run's folder.
        attempt: that hangs.

    Attributes:
        number: of the hang, after `begin`.
        refused: why something was not kept, the first reason.
    """

    def __init__(self, run: RunFolder, attempt: int) -> None:
        self._run, self._attempt = run, attempt
        self.number = 0
        self.refused = ""
        self._bytes = self._files = 0
        self._open: dict[tuple[str, str], list[bytes]] = {}

    def begin(self) -> int:
        """Make the folders and return the number of the hang.

        Raises:
            OSError: the disk refuses.
        """
        hangs = self._run.root / "hangs"
        hangs.mkdir(exist_ok=True)
        before = [int(name) for name in os.listdir(hangs) if name.isdecimal() and len(name) < 7]
        self.number = max(before, default=0) + 1
        (hangs / str(self.number)).mkdir()
        (self._run.root / "flight").mkdir(exist_ok=True)
        (self._run.root / "flight" / f"attempt-{self._attempt}").mkdir(exist_ok=True)
        return self.number

    def take(self, node: str, name: str, part: bytes, last: bool) -> None:
        """Keep a part of a file; with the last one it is written. What is too much, or no name of ours, is not kept."""
        if not _NAME.fullmatch(name) or ".." in name:
            self._refuse(f"{node} told a file of the name {name[:100]!r}")
            return
        self._bytes += len(part)
        if self._bytes > MOST_BYTES or self._files > _MOST_FILES:
            self._open.pop((node, name), None)
            self._refuse(f"more than {MOST_BYTES >> 20} MiB were collected: the rest is left out")
            return
        parts = self._open.setdefault((node, name), [])
        parts.append(part)
        if last:
            del self._open[node, name]
            self._files += 1
            self._write(name, b"".join(parts))

    def describe(self, document: dict[str, Any]) -> None:
        """Write what is known of the hang itself."""
        self._write("hang.json", json.dumps(document).encode())

    def _write(self, name: str, data: bytes) -> None:
        dump: Optional[re.Match[str]] = _DUMP.fullmatch(name)
        folder = self._run.root / "hangs" / str(self.number)
        path = folder / name
        if dump is not None:
            path = self._run.root / "flight" / f"attempt-{self._attempt}" / f"rank-{dump[1]}.pkl"
        try:
            write_atomically(path, data, below=self._run.root)
        except (OSError, RunFolderError) as error:
            self._refuse(f"{name} cannot be written: {error}")

    def _refuse(self, why: str) -> None:
        self.refused = self.refused or why
