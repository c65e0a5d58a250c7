"""How far a farm is, in the place of checkpoints: a segment that has ended tasks has got on, and the next begins behind them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Optional

from cordee.runs.checkpoint import Checkpoint, CheckpointFinder
from cordee.systems.trials.node.journal_tail import JournalTail
from cordee.systems.trials.node.task_states import DONE, ENDED, FAILED


class FarmProgress(CheckpointFinder):
    """See CheckpointFinder: the newest checkpoint is the journal of the tasks, and its name says how many have ended."""

    def __init__(self, policy: Any, run: str, control: Path, orphan_s: float, kill_s: float) -> None:
        self._tail = JournalTail(Path(control).parent)
        self._ended: set[int] = set()

    def newest(self, problems: Optional[list[str]] = None) -> Optional[Checkpoint]:
        try:
            for line in self._tail.lines():
                if ENDED.encode() in line:
                    self._take(line)
        except OSError as error:
            if problems is not None:
                problems.append(f"the journal of the tasks cannot be read: {error}")
        count = len(self._ended)
        return Checkpoint(str(self._tail.folder), f"tasks-{count}", count, count) if count else None

    def _take(self, line: bytes) -> None:
        try:
            rows = json.loads(line)["ended"]
            self._ended |= {row[0] for row in rows if row[2] in (DONE, FAILED)}
        except (ValueError, KeyError, TypeError, IndexError):
            return  # a line that was torn and closed
