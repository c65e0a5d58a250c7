"""A farm as people are told of it: how many tasks there are, what became of them, which failed."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Any

from cordee.core.errors import UsageError
from cordee.core.secrets import masked_text
from cordee.core.units import parse_utc
from cordee.runs.journal import read_journal
from cordee.systems.trials.node.task_list import FIRST, FOLDER, JOURNAL, FarmTask, read_tasks, task_of
from cordee.systems.trials.node.task_states import TaskStates, replay

SCHEMA = "cordee.farm/1"


def has_tasks(root: Path) -> bool:
    """Return whether a run is a farm or a sweep."""
    return (root / FOLDER / FIRST).is_file()


class Farm:
    """The tasks of a run, and what became of them.

    Args:
        root: the run's folder.

    Raises:
        UsageError: it is no farm.
        RunFolderError: it cannot be read.
    """

    def __init__(self, root: Path) -> None:
        if not has_tasks(root):
            what, allowed = "`cordee runs` lists runs", "a run of `cordee farm`"
            raise UsageError("this run is no farm", given=root.name, allowed=allowed, next=what)
        # Of a farm that was dealt out over several jobs these have the journals.
        parts = sorted(root.glob(f"children/*/{FOLDER}/{JOURNAL}")) or [root / FOLDER / JOURNAL]
        self.parts = len(parts)
        self.states: TaskStates = replay(chain.from_iterable(read_journal(part) for part in parts))
        made = [task_of(document) for document in self.states.made]
        tasks = read_tasks(root, [FIRST, *self.states.files]) + made
        self.tasks: list[FarmTask] = sorted(tasks, key=lambda task: task.id)

    @property
    def seconds(self) -> float | None:
        """From the first task that was given to a node until the newest end; None: none has ended."""
        if self.states.began is None or self.states.ended is None:
            return None
        return round(max(0.0, parse_utc(self.states.ended) - parse_utc(self.states.began)), 3)

    def document(self, run: str) -> dict[str, Any]:
        """Return the document of `cordee farm`."""
        running = sum(self.states.of(task.id).state == "running" for task in self.tasks)
        counts = {"tasks": len(self.tasks), "done": self.states.done, "failed": self.states.failed, "running": running}
        return {"schema": SCHEMA, "run": run, **counts, "seconds": self.seconds}

    def rows(self, only: str | None = None) -> list[dict[str, Any]]:
        """Return the tasks, or those in one state, as documents."""
        wanted = (task for task in self.tasks if only in (None, self.states.of(task.id).state))
        return [self._row(task) for task in wanted]

    def _row(self, task: FarmTask) -> dict[str, Any]:
        state = self.states.of(task.id)
        row = {
            "id": task.id,
            "state": state.state,
            "tries": state.given,
            "line": task.line,
            "values": {name: masked_text(value) if name == "line" else value for name, value in task.values.items()},
        }
        end = state.end
        if end is None:
            return row
        told = {name: getattr(end, name) for name in ("code", "signal", "reason", "seconds", "node")}
        known = {"peak_bytes": end.peak_bytes or None, "cpu_seconds": end.cpu_s, "text": end.text or None}
        return {**row, **told, **known}
