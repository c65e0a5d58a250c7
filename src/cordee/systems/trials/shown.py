"""A farm as people are told of it: how many tasks there are, what became of them, which failed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cordee.core.errors import UsageError
from cordee.core.units import parse_utc
from cordee.runs.journal import read_journal
from cordee.systems.trials.node.task_list import FIRST, FOLDER, JOURNAL, FarmTask, read_tasks
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
            raise UsageError(
                "this run is no farm",
                given=root.name,
                allowed="a run of `cordee farm`",
                next="`cordee runs` lists runs",
            )
        self.states: TaskStates = replay(read_journal(root / FOLDER / JOURNAL))
        self.tasks: list[FarmTask] = read_tasks(root, [FIRST, *self.states.files])

    @property
    def seconds(self) -> float | None:
        """From the first task that was given to a node until the newest end; None: none has ended."""
        if self.states.began is None or self.states.ended is None:
            return None
        return round(max(0.0, parse_utc(self.states.ended) - parse_utc(self.states.began)), 3)

    def document(self, run: str) -> dict[str, Any]:
        """Return the document of `cordee farm`."""
        running = sum(self.states.of(task.id).state == "running" for task in self.tasks)
        return {
            "schema": SCHEMA,
            "run": run,
            "tasks": len(self.tasks),
            "done": self.states.done,
            "failed": self.states.failed,
            "running": running,
            "seconds": self.seconds,
        }

    def rows(self, only: str | None = None) -> list[dict[str, Any]]:
        """Return the tasks, or those in one state, as documents."""
        rows = []
        for task in self.tasks:
            state = self.states.of(task.id)
            if only is not None and state.state != only:
                continue
            row: dict[str, Any] = {
                "id": task.id,
                "state": state.state,
                "tries": state.given,
                "line": task.line,
                "values": dict(task.values),
            }
            end = state.end
            if end is not None:
                told = {"code": end.code, "signal": end.signal, "reason": end.reason, "seconds": end.seconds}
                more = {
                    "peak_bytes": end.peak_bytes or None,
                    "cpu_seconds": end.cpu_s,
                    "node": end.node,
                    "text": end.text or None,
                }
                row.update(told, **more)
            rows.append(row)
        return rows
