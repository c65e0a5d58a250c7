"""How far a farm is, in the place of checkpoints: a segment that has ended tasks has got on, and the next begins behind them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Optional

from cordee.machine.foreign_files import regular_below
from cordee.runs.checkpoint import Checkpoint, CheckpointFinder
from cordee.systems.trials.node.task_list import FOLDER, JOURNAL
from cordee.systems.trials.node.task_states import DONE, ENDED, FAILED


class FarmProgress(CheckpointFinder):
    """See CheckpointFinder: the newest checkpoint is the journal of the tasks, and its name says how many have ended."""

    def __init__(self, policy: Any, run: str, control: Path, orphan_s: float, kill_s: float) -> None:
        self._root = Path(control).parent
        self._folder = self._root / FOLDER / JOURNAL
        self._read: dict[str, int] = {}
        self._ended: set[int] = set()

    def newest(self, problems: Optional[list[str]] = None) -> Optional[Checkpoint]:
        try:
            for path in sorted(self._folder.glob("supervisor-*.jsonl")):
                self._read_more(path)
        except OSError as error:
            if problems is not None:
                problems.append(f"the journal of the tasks cannot be read: {error}")
        count = len(self._ended)
        return Checkpoint(str(self._folder), f"tasks-{count}", count, count) if count else None

    def _read_more(self, path: Path) -> None:
        """Take the whole lines that have come since the last look."""
        at = self._read.get(path.name, 0)
        with open(path, "rb", opener=regular_below(self._root)) as lines:
            lines.seek(at)
            for line in lines:
                if not line.endswith(b"\n"):
                    break
                at += len(line)
                if ENDED.encode() in line:
                    self._take(line)
        self._read[path.name] = at

    def _take(self, line: bytes) -> None:
        try:
            rows = json.loads(line)["ended"]
            self._ended |= {row[0] for row in rows if row[2] in (DONE, FAILED)}
        except (ValueError, KeyError, TypeError, IndexError):
            return  # a line that was torn and closed
