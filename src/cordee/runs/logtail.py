"""New frames of all nodes' logs, from files that are kept open: reading on costs no look at a folder or a name."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

from cordee.machine.foreign_files import open_folder, regular_in
from cordee.runs.logframes import Frame, read_frames, split_name

# Of 1,024 that a process may have open without asking for more.
_MOST_OPEN = 512
_MOST_NEW = 64
_FEW = 16


class LogTail:
    """Continues where it stopped, in every file.

    Args:
        folder: the run's `logs/` folder.
        node: read only this node's output.
        begin_bytes: begin so far from the end of what is there; None: from its beginning.
        most_open: files that are kept open.

    Attributes:
        troubles: files that cannot be read, by name, and why.
    """

    def __init__(
        self, folder: Path, *, node: str | None = None, begin_bytes: int | None = None, most_open: int = _MOST_OPEN
    ) -> None:
        self._folder, self._node, self._begin_bytes, self._most_open = folder, node, begin_bytes, most_open
        self._open: OrderedDict[str, int] = OrderedDict()
        self._offsets: dict[str, int] = {}
        self._waiting: dict[str, None] = {}
        self.troubles: dict[str, OSError] = {}

    def read(self, names: Collection[str] | None = None, *, everything: bool = False) -> Iterator[Frame]:
        """Yield new frames, file by file, those of earlier segments first, each file's in order.

        Args:
            names: only of these files, which have grown, and of a few that are open anyway; None: of all that are there.
            everything: open all of them now; otherwise a call opens a few new files and leaves the others to the next calls.
        """
        found = self._listed() if names is None else names
        self._waiting.update(dict.fromkeys(sorted(found, key=lambda name: split_name(name)[::-1])))
        if len(self._open) <= _FEW:
            self._waiting.update(dict.fromkeys(self._open))
        left = len(self._waiting) if everything else _MOST_NEW
        for name in list(self._waiting):
            if self._node is not None and split_name(name)[0] != self._node:
                del self._waiting[name]
                continue
            if name not in self._open:
                if left <= 0:
                    continue
                left -= 1
            del self._waiting[name]
            yield from self._read(name)

    def close(self) -> None:
        """Let all files go."""
        while self._open:
            os.close(self._open.popitem()[1])

    def __del__(self) -> None:
        self.close()

    def _listed(self) -> list[str]:
        """Return the names of all files; one that is gone, or was made anew under its name, is let go."""
        with suppress(OSError):
            for name in [name for name, opened in self._open.items() if os.fstat(opened).st_nlink == 0]:
                os.close(self._open.pop(name))
                self._offsets.pop(name, None)
            return [name for name in os.listdir(self._folder) if name.endswith(".log")]
        return []

    def _read(self, name: str) -> Iterator[Frame]:
        try:
            descriptor = self._opened(name)
            if name not in self._offsets:
                size = os.fstat(descriptor).st_size
                self._offsets[name] = 0 if self._begin_bytes is None else max(0, size - self._begin_bytes)
            for frame in read_frames(self._folder / name, self._offsets[name], None, descriptor):
                self._offsets[name] = frame.end
                yield frame
            self.troubles.pop(name, None)
        except FileNotFoundError:
            pass  # its writer has told of it and not made it yet
        except OSError as error:
            self.troubles[name] = error

    def _opened(self, name: str) -> int:
        descriptor = self._open.pop(name, None)
        if descriptor is None:
            while len(self._open) >= self._most_open:
                os.close(self._open.popitem(last=False)[1])
            folder = open_folder(self._folder, self._folder.parent)
            try:
                descriptor = regular_in(folder, name)
            finally:
                os.close(folder)
        self._open[name] = descriptor
        return descriptor
