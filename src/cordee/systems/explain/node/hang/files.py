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
# Dumps are large, and those of some ranks tell enough; what else is collected of a rank is some kilobytes.
_MOST_DUMPS_BYTES, _MOST_OTHER_BYTES = 192 << 20, 128 << 20


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
        self._dumps_bytes = self._other_bytes = 0
        self._open: dict[tuple[str, str], list[bytes]] = {}
        self._dropped: set[tuple[str, str]] = set()

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
        key = (node, name)
        if not _NAME.fullmatch(name) or ".." in name:
            self._refuse(f"{node} told a file of the name {name[:100]!r}")
        elif key not in self._dropped and self._has_room(name, len(part)):
            parts = self._open.setdefault(key, [])
            parts.append(part)
            if last:
                del self._open[key]
                self._write(name, b"".join(parts))
        else:
            self.drop(node, name, "so much was collected that not all of it is kept")

    def again(self, node: str) -> None:
        """Forget the parts of files that a node has not told to their end: it begins again."""
        for key in [key for key in self._open if key[0] == node]:
            del self._open[key]

    def drop(self, node: str, name: str, why: str) -> None:
        """Keep nothing of a file: a part of it is missing."""
        self._open.pop((node, name), None)
        self._dropped.add((node, name))
        self._refuse(f"{why}: {name} of {node} is the first that is left out")

    def _has_room(self, name: str, length: int) -> bool:
        if _DUMP.fullmatch(name):
            self._dumps_bytes += length
            return self._dumps_bytes <= _MOST_DUMPS_BYTES
        self._other_bytes += length
        return self._other_bytes <= _MOST_OTHER_BYTES

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
            write_atomically(path, data, below=self._run.root, durable=False)
        except (OSError, RunFolderError) as error:
            self._refuse(f"{name} cannot be written: {getattr(error, 'text', error)}")

    def _refuse(self, why: str) -> None:
        self.refused = self.refused or why
