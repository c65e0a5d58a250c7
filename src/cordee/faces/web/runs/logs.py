"""What ranks printed, a page at a time from the newest line back, at a bounded cost however large the files are."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cordee.core.secrets import OutputMask
from cordee.runs.folder import RunFolder
from cordee.runs.log_tails import output_mask
from cordee.runs.logframes import ERR, OUT, OWN, LineAssembler, LogReader, OutputLine, read_frames

STREAMS = {"out": OUT, "err": ERR, "own": OWN}
_NAMES = {number: name for name, number in STREAMS.items()}
_LONGEST_TEXT = 4000
_MOST_BYTES = 64 << 20
_LARGEST_WINDOW = 256 << 10
_LEAST_WINDOW = 8 << 10
_SEARCHED_BYTES = 1 << 20


@dataclass
class _File:
    """The newest lines of one file that were read so far: from the offset `start` up to `stop`, its end if `newest`.

    Attributes:
        unsure: `id` of those lines whose beginning may lie before `start`.
    """

    path: Path
    stop: int
    start: int
    newest: bool
    lines: list[OutputLine] = field(default_factory=list)
    unsure: set[int] = field(default_factory=set)

    @property
    def since(self) -> float:
        """From when on the lines are complete."""
        return -math.inf if self.start == 0 else min((line.time for line in self.lines), default=math.inf)


def page(
    reader: LogReader,
    lines: int,
    *,
    rank: int | None = None,
    node: str | None = None,
    stream: str | None = None,
    before: float | None = None,
    after: float | None = None,
) -> dict[str, Any]:
    """Return `{lines, before}`: the last lines, the oldest first, and the time to give back for older ones.

    Args:
        lines: at least so many where there are, and a few more where several were finished at one moment.
        rank, node, stream: only these.
        before, after: only lines that were finished then, UTC epoch seconds.
    """
    wanted = None if stream is None else STREAMS[stream]
    paths = reader.files(node, rank)
    window = max(_LEAST_WINDOW, min(_LARGEST_WINDOW, _MOST_BYTES // 4 // max(1, len(paths))))
    files = [_opened(path, before) for path in paths]
    files = [file for file in files if file.stop > 0]
    budget = _MOST_BYTES
    pending = files
    while True:
        for file in pending:
            budget -= _extend(file, window, rank, wanted)
        since = max((file.since for file in files), default=-math.inf)
        kept = [line for file in files for line in file.lines if line.time >= since and _within(line, before, after)]
        pending = [file for file in files if file.start > 0 and file.since >= since]
        if len(kept) >= lines or not pending or budget <= 0 or (after is not None and since < after):
            break
        window *= 4
    kept.sort(key=lambda line: line.time)
    if len(kept) > lines:
        oldest = kept[-lines].time
        kept = [line for line in kept if line.time >= oldest]
    more = (
        any(line.time < kept[0].time and _within(line, None, after) for file in files for line in file.lines)
        if kept
        else False
    )
    more = more or any(file.start > 0 for file in files)
    begin = kept[0].time if kept else (since if math.isfinite(since) else None)
    unsure = {line for file in files for line in file.unsure}
    mask = output_mask(RunFolder(reader.folder.parent))
    shown = [_document(line, id(line) in unsure, mask) for line in kept]
    return {"lines": shown, "before": begin if more else None}


def _opened(path: Path, before: float | None) -> _File:
    try:
        size = os.path.getsize(path)
        stop = size if before is None or size < _SEARCHED_BYTES else _offset_of(path, size, before)
    except OSError:
        size = stop = 0
    return _File(path, stop, stop, stop == size)


def _offset_of(path: Path, size: int, moment: float) -> int:
    """Return an offset behind which nothing was written before a moment, but for what a clock that went back wrote."""
    low, high = 0, size
    while high - low > _LEAST_WINDOW:
        middle = (low + high) // 2
        frame = next(read_frames(path, middle), None)
        if frame is not None and frame.time < moment:
            low = middle
        else:
            high = middle
    return min(size, high + _LARGEST_WINDOW)


def _extend(file: _File, window: int, rank: int | None, stream: int | None) -> int:
    """Read a file further back, and return how many bytes that took."""
    start = max(0, file.stop - window)
    assembler = LineAssembler()
    begun: set[tuple[str, int, int, int]] = set()
    found: list[OutputLine] = []
    unsure: set[int] = set()

    def keep(line: OutputLine) -> None:
        key = (line.node, line.rank, line.stream, line.attempt)
        if start > 0 and key not in begun:
            unsure.add(id(line))
        begun.add(key)
        found.append(line)

    try:
        for frame in read_frames(file.path, start, file.stop):
            if (rank is None or frame.rank == rank) and (stream is None or frame.stream == stream):
                for line in assembler.feed(frame):
                    keep(line)
        if file.newest:  # what has no end yet, such as a bar of progress
            found += assembler.rest()
    except OSError:
        found, unsure = file.lines, file.unsure
    file.start, file.lines, file.unsure = start, found, unsure
    return file.stop - start


def _within(line: OutputLine, before: float | None, after: float | None) -> bool:
    return (before is None or line.time < before) and (after is None or line.time > after)


def _document(line: OutputLine, unsure: bool, mask: OutputMask) -> dict[str, Any]:
    data = line.data.rstrip(b"\r").rpartition(b"\r")[2][: 4 * _LONGEST_TEXT]
    text = mask.line(data, (line.node, line.rank, line.stream, line.attempt), line.rank).decode(errors="replace")
    return {
        "time": line.time,
        "node": line.node,
        "rank": line.rank,
        "stream": _NAMES.get(line.stream, str(line.stream)),
        "attempt": line.attempt,
        "text": text[:_LONGEST_TEXT],
        "cut": unsure or len(text) > _LONGEST_TEXT,
    }
