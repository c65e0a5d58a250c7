"""Shells that clients open on a node, in the environment of the ranks, each on a pseudo terminal."""

from __future__ import annotations

from typing import Callable

from cordee.control.agent.enclosure import Enclosure, EnclosureDown
from cordee.control.agent.orders import Handlers
from cordee.control.agent.uplink import Uplink
from cordee.core.errors import EXIT_INTERNAL
from cordee.machine.tasks.callbacks import WatchedTasks
from cordee.machine.tasks.task import Task, TaskExit
from cordee.wire.messages import Shell, ShellExit, ShellInput, ShellOutput, ShellResize

_MOST_ON_ITS_WAY = 4 << 20
# What an image has is not known before it is entered.
_SHELL_INSIDE = ("/bin/sh", "-c", "command -v bash >/dev/null && exec bash -i; exec sh -i")


class NodeShells:
    """The shells of one node.

    Args:
        watched: starts them.
        uplink: what they print goes there; they wait while much of that has not arrived.
        environment: returns what a shell finds set.
        enclosure: where it opens, and in which folder.

    Attributes:
        handlers: what takes the orders that are meant for shells, by their type.
    """

    def __init__(
        self,
        watched: WatchedTasks,
        uplink: Uplink,
        environment: Callable[[], dict[str, str]],
        enclosure: Enclosure,
    ) -> None:
        self._tasks, self._run_task, self._uplink = watched.tasks, watched.run_task, uplink
        self._environment, self._enclosure = environment, enclosure
        self._waiting: set[str] = set()
        self.handlers: Handlers = {Shell: self._open, ShellInput: self._input, ShellResize: self._resize}

    def go_on(self) -> None:
        """Read again what shells print that had to wait, if there is room now."""
        if self._waiting and self._uplink.unacknowledged_bytes < _MOST_ON_ITS_WAY // 2:
            for session in self._waiting:
                self._tasks.pause_one(session, False)
            self._waiting.clear()

    def _open(self, order: Shell, body: bytes) -> None:
        env = self._environment()
        env["TERM"] = order.term or "xterm"
        own = _SHELL_INSIDE if self._enclosure.encloses else (env.get("SHELL") or "/bin/sh", "-i")
        size, session = (order.rows, order.columns), order.id
        tell = self._uplink.teller()
        try:
            argv = self._enclosure.wrap(order.argv or own)
        except EnclosureDown as error:
            tell(ShellExit(session, EXIT_INTERNAL, error.text))
            return

        def finished(ended: TaskExit) -> None:
            code = ended.code if ended.code is not None else 128
            self._waiting.discard(session)
            tell(ShellExit(session, code, ended.text))

        def printed(stream: int, data: bytes) -> None:
            tell(ShellOutput(session), data)
            if self._uplink.unacknowledged_bytes > _MOST_ON_ITS_WAY:
                self._waiting.add(session)
                self._tasks.pause_one(session, True)

        task = Task(session, argv, env, self._enclosure.cwd, group="shell", terminal=size)
        self._run_task(task, finished, output=printed)

    def _input(self, order: ShellInput, body: bytes) -> None:
        if order.closed:
            self._tasks.hang_up(order.id)
        else:
            self._tasks.write(order.id, body)

    def _resize(self, order: ShellResize, body: bytes) -> None:
        self._tasks.resize(order.id, order.rows, order.columns)
