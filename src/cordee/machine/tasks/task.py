"""The one primitive: a Task is a command with an environment, CPUs, a deadline and a group.

Ranks, checks, set-up lines and shells are Tasks, and a TaskRunner is the only thing on a node that starts processes.
Nothing that a task started is left behind when it ends, and the runner never waits for a process that the kernel holds.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from dataclasses import dataclass, field
from functools import partial
from typing import Callable, Iterable, Optional, Sequence

from cordee.core.words import signal_name
from cordee.machine.processes import tree as processes
from cordee.machine.tasks.commands import not_started
from cordee.machine.tasks.streams import STDERR, STDOUT, TaskStreams, spawn, spawn_quickly

__all__ = ["STDERR", "STDOUT", "Task", "TaskExit", "TaskRunner"]
_LONG_LOOK_S, _LOOKS_SHARE = 0.02, 0.1
_DRAIN_S = 0.5


@dataclass(frozen=True)
class Task:
    """What to run.

    Attributes:
        id: unique on its node.
        argv: the command; `argv[0]` is looked up on the PATH of `env`.
        env: the whole environment.
        cwd: working folder.
        deadline_s: killed after this many seconds; None means never.
        group: tasks that are stopped together.
        stdin: bytes for standard input; None means /dev/null.
        terminal: (rows, columns) to run it on a pseudo terminal, as a shell is.
        keeps_children: what it started stays when it ends, until the runner does (a daemon of a set-up line).
        open_stdin: its standard input stays open until `close_stdin`, or until this process ends.
        elsewhere: others start processes for it, which are not below this one (srun).
        cpus: it may run on these alone; None: where this process may.
        quick: started in a way that takes a fifth of the time, where the machine has what that needs; what cannot be executed ends with
            126 or 127 then, as in a shell.
    """

    id: str
    argv: tuple[str, ...]
    env: dict[str, str]
    cwd: str
    deadline_s: Optional[float] = None
    group: str = ""
    stdin: Optional[bytes] = None
    terminal: Optional[tuple[int, int]] = None
    keeps_children: bool = False
    open_stdin: bool = False
    elsewhere: bool = False
    cpus: Optional[frozenset[int]] = None
    quick: bool = False


@dataclass(frozen=True)
class TaskExit:
    """How a task ended: `reason` is exited, deadline, stopped, not_started or stuck (killed, but held by the kernel).

    `peak_bytes` is the largest resident memory of any one of its processes, `cpu_s` the CPU time of all of them that ended before it; 0: unknown.
    """

    id: str
    code: Optional[int]
    signal: Optional[str]
    reason: str
    seconds: float
    text: str = ""
    peak_bytes: int = 0
    cpu_s: float = 0.0


@dataclass
class _Running:
    task: Task
    marker: str
    process: subprocess.Popen[bytes]
    started: float
    streams: TaskStreams
    reason: str = "exited"
    status: Optional[int] = None
    peak_bytes: int = 0
    cpu_s: float = 0.0
    timers: list[asyncio.TimerHandle] = field(default_factory=list)
    ended: bool = False


class TaskRunner:
    """Starts tasks and reports their output and end; one per process, on its event loop.

    Args:
        owner: prefix of the markers that tie processes to this runner, `run/node/incarnation`.
        on_output: called with (task, STDOUT or STDERR, bytes); a pseudo terminal's output is STDOUT.
        on_exit: called once per task with (task, TaskExit), after its output.
        on_start: called with (task, pid).
        kill_s: seconds after SIGKILL when a task that will not go is reported as stuck.

    Attributes:
        spared: children of this process that are no tasks and are never killed; what tasks with an open standard input
            leave to this process belongs here.
    """

    def __init__(
        self,
        owner: str,
        on_output: Callable[[Task, int, bytes], None],
        on_exit: Callable[[Task, TaskExit], None],
        on_start: Optional[Callable[[Task, int], None]] = None,
        kill_s: float = 10.0,
    ) -> None:
        self.owner = owner
        self.kill_s = kill_s
        self._on_output, self._on_exit, self._on_start = on_output, on_exit, on_start
        self._running: dict[str, _Running] = {}
        self._loop = asyncio.get_running_loop()
        self._loop.add_signal_handler(signal.SIGCHLD, self._reap)
        self._paused = False
        self._next_reap = 0.0
        self._reaping: Optional[asyncio.TimerHandle] = None
        self.spared: set[int] = set()
        self._lists_children = processes.lists_children()

    def start(self, task: Task) -> None:
        """Start a task; one that cannot be started has ended when this returns.

        Raises:
            ValueError: a task of this id runs already.
        """
        if task.id in self._running:
            raise ValueError(f"a task {task.id!r} runs already")
        marker = f"{self.owner}/{task.id}"
        started = time.monotonic()
        env = {**task.env, processes.MARKER: marker}
        reads = task.stdin is not None or task.open_stdin
        try:
            quick = spawn_quickly(task.argv, env, task.cwd, task.cpus) if task.quick and not reads else None
            spawned = quick or spawn(task.argv, env, task.cwd, reads=reads, terminal=task.terminal, cpus=task.cpus)
        except (OSError, subprocess.SubprocessError, ValueError) as error:
            code, text = not_started(error, task.argv[0], task.cwd)
            self._on_exit(task, TaskExit(task.id, code, None, "not_started", 0.0, text))
            return
        streams = TaskStreams(
            spawned, task.stdin, task.open_stdin, partial(self._on_output, task), partial(self._silent, task.id)
        )
        entry = self._running[task.id] = _Running(task, marker, spawned.process, started, streams)
        if not self._paused:
            streams.pause(False)
        if task.deadline_s is not None:
            entry.timers.append(self._loop.call_later(task.deadline_s, self._end, [entry], "deadline", 0.0))
        if self._on_start is not None:
            self._on_start(task, spawned.process.pid)

    def running(self, group: Optional[str] = None) -> list[str]:
        """Return the ids of running tasks, of one group or all."""
        return [task_id for task_id, entry in self._running.items() if group is None or entry.task.group == group]

    def pid(self, task_id: str) -> Optional[int]:
        """Return the pid of a running task."""
        entry = self._running.get(task_id)
        return entry.process.pid if entry else None

    def signal(self, group: str, number: int) -> None:
        """Send a signal to the main process of each task of a group, and to nothing else."""
        for entry in self._running.values():
            if entry.task.group == group and entry.status is None:
                processes.kill_all([entry.process.pid], number)

    def stop(self, group: str, grace_s: float) -> None:
        """End a group: SIGTERM to each task's process group, SIGKILL to all its processes `grace_s` later."""
        self._end([entry for entry in self._running.values() if entry.task.group == group], "stopped", grace_s)

    def write(self, task_id: str, data: bytes) -> None:
        """Send bytes to a task that runs on a pseudo terminal or has an open standard input; one that is gone swallows them."""
        entry = self._running.get(task_id)
        if entry is not None:
            entry.streams.type(data)

    def hang_up(self, task_id: str) -> None:
        """End one task at once, as when its terminal is closed."""
        entry = self._running.get(task_id)
        if entry is not None:
            self._end([entry], "stopped", 1.0)

    def close_stdin(self, task_id: str) -> None:
        """Close the standard input that was kept open for a task: for many programs the sign to end."""
        entry = self._running.get(task_id)
        if entry is not None:
            entry.streams.close_stdin()

    def resize(self, task_id: str, rows: int, columns: int) -> None:
        """Tell a pseudo terminal its size in characters."""
        entry = self._running.get(task_id)
        if entry is not None:
            entry.streams.resize(rows, columns)

    @property
    def output_paused(self) -> bool:
        """Whether the tasks' output is not read at the moment."""
        return self._paused

    def pause_output(self, paused: bool) -> None:
        """Stop or go on reading the tasks' output: their pipes fill up and they wait, nothing is dropped."""
        if paused == self._paused:
            return
        self._paused = paused
        for entry in self._running.values():
            entry.streams.pause(paused)

    def pause_one(self, task_id: str, paused: bool) -> None:
        """Stop or go on reading the output of one task, while that of all is not paused."""
        entry = self._running.get(task_id)
        if entry is not None and not self._paused:
            entry.streams.pause(paused)

    def kill_everything(self) -> None:
        """Kill all tasks at once without waiting, for the end of the agent."""
        table = processes.all_processes()
        processes.kill_all(processes.of_tasks(_markers(self._running.values()), table))
        table = processes.all_processes()
        processes.kill_all(self._not_spared(processes.descendants([os.getpid()], table), table))
        processes.sweep(self.owner + "/")

    def _not_spared(self, pids: set[int], table: dict[int, processes.Process]) -> set[int]:
        return pids - self.spared - processes.descendants(self.spared, table)

    def _silent(self, task_id: str) -> None:
        """Nothing more will be printed: the task has ended if its process has."""
        entry = self._running.get(task_id)
        if entry is not None and entry.status is not None:
            self._finish(entry)

    def _end(self, entries: Sequence[_Running], reason: str, grace_s: float) -> None:
        living = [entry for entry in entries if entry.status is None and not entry.ended]
        for entry in living:
            if entry.reason == "exited":
                entry.reason = reason
        if grace_s <= 0:
            self._kill(entries)
            return
        for entry in living:
            try:
                os.killpg(entry.process.pid, signal.SIGTERM)
            except (ProcessLookupError, PermissionError):
                continue
        self._loop.call_later(grace_s, self._kill, living)
        self._kill([entry for entry in entries if entry.status is not None])

    def _kill(self, entries: Sequence[_Running]) -> None:
        entries = [entry for entry in entries if not entry.ended]
        if not entries:
            return
        processes.kill_all(processes.of_tasks(_markers(entries), processes.all_processes()))
        for entry in entries:
            entry.timers.append(self._loop.call_later(self.kill_s, self._give_up, entry))

    def _give_up(self, entry: _Running) -> None:
        if not entry.ended and entry.status is None:
            entry.reason = "stuck"
            self._finish(entry)

    def _reap(self) -> None:
        """Take every child that has ended: many ranks end at once, and one look at the node's processes is for all of them.

        Where there are so many processes that a look takes long, ends wait for each other: a tenth of the time goes into looks.
        """
        now = self._loop.time()
        if now < self._next_reap:
            if self._reaping is None:
                self._reaping = self._loop.call_at(self._next_reap, self._reap)
            return
        self._reaping = None
        by_pid = {entry.process.pid: entry for entry in self._running.values()}
        ended = []
        while True:
            try:
                pid, status, used = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            entry = by_pid.get(pid)
            if entry is not None:
                entry.status = status
                entry.peak_bytes, entry.cpu_s = used.ru_maxrss << 10, used.ru_utime + used.ru_stime
                entry.process.returncode = os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)
                ended.append(entry)
        try:
            self._kill_left_behind([entry for entry in ended if not entry.task.keeps_children])
        finally:
            took_s = self._loop.time() - now
            self._next_reap = now + took_s / _LOOKS_SHARE if took_s > _LONG_LOOK_S else 0.0
            for entry in ended:
                if entry.streams.open:
                    entry.timers.append(self._loop.call_later(_DRAIN_S, self._finish, entry))
                else:
                    self._finish(entry)

    def _kill_left_behind(self, ended: Sequence[_Running]) -> None:
        """Kill what ended tasks started; strays that hide their origin go once no other task could own them."""
        if not ended:
            return
        table = self._where_they_left(ended)
        left = processes.of_tasks(_markers(ended), table)
        if not any(other.status is None and not other.task.open_stdin for other in self._running.values()):
            strays = processes.strays(os.getpid(), f"{self.owner}/", table)
            left |= self._not_spared(strays | processes.descendants(strays, table), table)
        processes.kill_all(left)

    def _where_they_left(self, ended: Sequence[_Running]) -> dict[int, processes.Process]:
        """Return all processes that ended tasks may have left, and others: not those below tasks that run, if possible.

        A task of a subreaper leaves its processes to that, and to nobody else: a node's thousands of others need no look.
        """
        if not self._lists_children or any(entry.task.elsewhere for entry in ended) or not processes.is_subreaper():
            return processes.all_processes()
        # What keeps a container open may be the parent of what ranks left in there.
        others = self._running.values()
        apart = {other.process.pid for other in others if other.status is None and not other.task.open_stdin}
        return processes.near_processes(apart)

    def _finish(self, entry: _Running) -> None:
        if entry.ended:
            return
        if self._paused and entry.streams.open and entry.status is not None:
            entry.timers.append(self._loop.call_later(_DRAIN_S, self._finish, entry))
            return
        entry.ended = True
        for timer in entry.timers:
            timer.cancel()
        entry.streams.close(drain=entry.status is not None)
        del self._running[entry.task.id]
        code, name = None, None
        if entry.status is not None and os.WIFEXITED(entry.status):
            code = os.WEXITSTATUS(entry.status)
        elif entry.status is not None:
            name = signal_name(os.WTERMSIG(entry.status))
        seconds = time.monotonic() - entry.started
        ended = TaskExit(entry.task.id, code, name, entry.reason, seconds, "", entry.peak_bytes, entry.cpu_s)
        self._on_exit(entry.task, ended)


def _markers(entries: Iterable[_Running]) -> dict[int, str]:
    return {entry.process.pid: entry.marker for entry in entries}
