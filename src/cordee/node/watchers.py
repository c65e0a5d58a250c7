"""Who is told of which task: its start, its output and its end."""

from __future__ import annotations

from typing import Callable, NamedTuple, Optional

from cordee.node.tasks import Task, TaskExit


class Watcher(NamedTuple):
    """What is called for one task: `ended(exit)` once, `started(pid)`, `output(stream, data)`."""

    ended: Callable[[TaskExit], None]
    started: Optional[Callable[[int], None]] = None
    output: Optional[Callable[[int, bytes], None]] = None


class Watchers:
    """The watchers of the tasks of one TaskRunner, by task."""

    def __init__(self) -> None:
        self._of: dict[str, Watcher] = {}

    def add(self, task: Task, watcher: Watcher) -> bool:
        """Watch a task that is about to start; False when one of its id runs already."""
        if task.id in self._of:
            return False
        self._of[task.id] = watcher
        return True

    def started(self, task: Task, pid: int) -> None:
        """Pass on that a task runs."""
        started = self._of[task.id].started
        if started is not None:
            started(pid)

    def output(self, task: Task, stream: int, data: bytes) -> None:
        """Pass on what a task printed."""
        output = self._of[task.id].output
        if output is not None:
            output(stream, data)

    def ended(self, task: Task, ended: TaskExit) -> None:
        """Pass on how a task ended, and forget it."""
        self._of.pop(task.id).ended(ended)
