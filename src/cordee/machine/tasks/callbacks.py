"""Tasks, each of them watched by whoever started it."""

from __future__ import annotations

from typing import Callable, NamedTuple, Optional

from cordee.machine.tasks.task import Task, TaskExit, TaskRunner


class _Watcher(NamedTuple):
    """What is called for one task."""

    ended: Callable[[TaskExit], None]
    started: Optional[Callable[[int], None]]
    output: Optional[Callable[[int, bytes], None]]


class WatchedTasks:
    """Starts tasks, and tells whoever started one of its start, its output and its end.

    Args:
        make: returns the TaskRunner, given `on_output`, `on_exit` and `on_start`.

    Attributes:
        tasks: that TaskRunner.
    """

    def __init__(self, make: Callable[..., TaskRunner]) -> None:
        self._watchers: dict[str, _Watcher] = {}
        self.tasks = make(on_output=self._output, on_exit=self._ended, on_start=self._started)

    def run_task(
        self,
        task: Task,
        ended: Callable[[TaskExit], None],
        *,
        started: Optional[Callable[[int], None]] = None,
        output: Optional[Callable[[int, bytes], None]] = None,
    ) -> None:
        """Start a task: `started(pid)`, `output(stream, data)` and, once, `ended(exit)` are called."""
        if task.id in self._watchers:
            ended(TaskExit(task.id, None, None, "not_started", 0.0, f"a task {task.id!r} runs already"))
            return
        self._watchers[task.id] = _Watcher(ended, started, output)
        self.tasks.start(task)

    def _started(self, task: Task, pid: int) -> None:
        started = self._watchers[task.id].started
        if started is not None:
            started(pid)

    def _output(self, task: Task, stream: int, data: bytes) -> None:
        output = self._watchers[task.id].output
        if output is not None:
            output(stream, data)

    def _ended(self, task: Task, ended: TaskExit) -> None:
        self._watchers.pop(task.id).ended(ended)
