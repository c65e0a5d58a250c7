"""What the live view reads of the output: it continues where it stopped, and begins near the end of what is long."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from cordee.core.secrets import masked_output
from cordee.runs.folder import RunFolder
from cordee.runs.log_tails import output_mask
from cordee.runs.logtail import LogTail

_BEGIN_BYTES = 256 << 10
_LONGEST_LINE = 4096


class OutputTail:
    """New lines of all ranks without keys, beginning near the end of each file.

    Args:
        folder: the run's `logs/` folder.

    Attributes:
        partial: by rank, what it has written since its last line end, such as a progress bar.
    """

    def __init__(self, folder: Path) -> None:
        self.partial: dict[int, bytes] = {}
        self._tail = LogTail(folder, begin_bytes=_BEGIN_BYTES)
        self._open: dict[tuple[str, int, int, int], bytes] = {}
        self._mask = output_mask(RunFolder(folder.parent))

    def read(self, names: Collection[str] | None = None) -> list[tuple[int, bytes]]:
        """Return (rank, line) of what was written since the last time, ordered by time as far as lines have one.

        Args:
            names: of the files that have grown; None: all are to be listed.
        """
        timed = []
        for frame in self._tail.read(names):
            key = (frame.file, frame.attempt, frame.rank, frame.stream)
            *whole, rest = (self._open.get(key, b"") + frame.data).split(b"\n")
            self._open[key] = rest[-_LONGEST_LINE:]
            known = self._mask.known(frame.rank)
            self.partial[frame.rank] = masked_output(self._open[key].decode("latin-1"), known).encode("latin-1").strip()
            timed += [
                (frame.time, frame.rank, self._mask.line(line[:_LONGEST_LINE], key, frame.rank)) for line in whole
            ]
        timed.sort(key=lambda line: line[0])
        return [(rank, line) for _, rank, line in timed]
