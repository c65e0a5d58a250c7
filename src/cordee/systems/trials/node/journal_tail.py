"""What the supervisors' journals of tasks have grown by: of this run, and of those beside it that have other trials of the same sweep."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, Callable, Iterator

from cordee.machine.foreign_files import regular_below
from cordee.runs.lane import Inline
from cordee.systems.trials.node.task_list import FOLDER, JOURNAL

# How often the journals of other jobs of the same sweep are looked at.
_LOOK_S = 3.0


class JournalTail:
    """The whole lines that have come into a run's journal of tasks since the last look.

    Args:
        root: the run's folder.
    """

    def __init__(self, root: Path) -> None:
        self._root, self.folder = root, root / FOLDER / JOURNAL
        self._read: dict[str, int] = {}

    def lines(self) -> Iterator[bytes]:
        """Yield them, one supervisor's after the other's.

        Raises:
            OSError: they cannot be read.
        """
        for path in sorted(self.folder.glob("supervisor-*.jsonl")):
            at = self._read.get(path.name, 0)
            with open(path, "rb", opener=regular_below(self._root)) as lines:
                lines.seek(at)
                for line in lines:
                    if not line.endswith(b"\n"):
                        break
                    at += len(line)
                    self._read[path.name] = at
                    yield line


class SiblingTails:
    """The journals of the runs beside this one, below the same run.

    Args:
        root: this run's folder.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._tails: dict[str, JournalTail] = {}
        self._look_at = 0.0

    def second(self, now: float, lane: Inline, heard: Callable[[list[dict[str, Any]]], None]) -> None:
        """A second is over: now and then, have the lane look, which may wait for their disk, and tell in this loop what is new."""
        if now < self._look_at:
            return
        self._look_at, loop = now + _LOOK_S, asyncio.get_running_loop()
        lane.submit(self.look).add_done_callback(lambda done: loop.call_soon_threadsafe(heard, done.result()))

    def look(self) -> list[dict[str, Any]]:
        """Return the events that are new; what cannot be read now is there at the next look."""
        found: list[dict[str, Any]] = []
        try:
            for path in sorted(self._root.parent.iterdir()):
                if path.name != self._root.name and (path / FOLDER / JOURNAL).is_dir():
                    self._tails.setdefault(path.name, JournalTail(path))
            for tail in self._tails.values():
                for line in tail.lines():
                    found += _events(line)
        except OSError:
            return found
        return found


def _events(line: bytes) -> list[dict[str, Any]]:
    try:
        event = json.loads(line)
    except ValueError:
        return []  # a line that was torn and closed
    return [event] if isinstance(event, dict) else []
