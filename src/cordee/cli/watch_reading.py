"""What the live view reads of the output: it continues where it stopped, and begins near the end of what is long."""

from __future__ import annotations

import os
from pathlib import Path

from cordee.runs.logframes import read_frames

_BEGIN_BYTES = 256 << 10
_LONGEST_LINE = 4096


class OutputTail:
    """New lines of all ranks, beginning near the end of each file.

    Args:
        folder: the run's `logs/` folder.

    Attributes:
        partial: by rank, what it has written since its last line end, such as a progress bar.
    """

    def __init__(self, folder: Path) -> None:
        self.partial: dict[int, bytes] = {}
        self._folder = folder
        self._offsets: dict[Path, int] = {}
        self._open: dict[tuple[Path, int, int, int], bytes] = {}

    def read(self) -> list[tuple[int, bytes]]:
        """Return (rank, line) of what was written since the last time, ordered by time as far as lines have one."""
        timed = []
        for path in sorted(self._folder.glob("*.log")):
            try:
                size = os.path.getsize(path)
                offset = self._offsets.get(path, max(0, size - _BEGIN_BYTES))
                if size == offset:
                    continue
                for frame in read_frames(path, offset):
                    self._offsets[path] = frame.end
                    key = (path, frame.attempt, frame.rank, frame.stream)
                    *whole, rest = (self._open.get(key, b"") + frame.data).split(b"\n")
                    self._open[key] = rest[-_LONGEST_LINE:]
                    self.partial[frame.rank] = self._open[key].strip()
                    timed += [(frame.time, frame.rank, line[:_LONGEST_LINE]) for line in whole]
            except OSError:
                continue
        timed.sort(key=lambda line: line[0])
        return [(rank, line) for _, rank, line in timed]
