"""Shells that clients open on a node, in the environment of the ranks, each on a pseudo terminal."""

from __future__ import annotations

from typing import Any, Callable

from cordee.errors import EXIT_INTERNAL
from cordee.node.container import Container, ContainerDown
from cordee.node.tasks import Task, TaskExit, TaskRunner
from cordee.node.uplink import Uplink

_MOST_ON_ITS_WAY = 4 << 20
# What an image has is not known before it is entered.
_SHELL_INSIDE = ("/bin/sh", "-c", "command -v bash >/dev/null && exec bash -i; exec sh -i")


class Shells:
    """The shells of one node.

    Args:
        tasks: the agent's tasks.
        run_task: starts one of them: `run_task(task, ended, output=...)`.
        uplink: what they print goes there; they wait while much of that has not arrived.
        environment: returns what a shell finds set.
        container: where it opens, and in which folder.

    Attributes:
        handlers: the messages that are meant for shells.
    """

    def __init__(
        self,
        tasks: TaskRunner,
        run_task: Callable[..., None],
        uplink: Uplink,
        environment: Callable[[], dict[str, str]],
        container: Container,
    ) -> None:
        self._tasks, self._run_task, self._uplink = tasks, run_task, uplink
        self._environment, self._container = environment, container
        self._waiting: set[str] = set()
        self.handlers: dict[str, Callable[[dict[str, Any], bytes], None]] = {
            "shell": self._open,
            "shell_input": self._input,
            "shell_resize": self._resize,
        }

    def go_on(self) -> None:
        """Read again what shells print that had to wait, if there is room now."""
        if self._waiting and self._uplink.unacknowledged_bytes < _MOST_ON_ITS_WAY // 2:
            for session in self._waiting:
                self._tasks.pause_one(session, False)
            self._waiting.clear()

    def _open(self, message: dict[str, Any], body: bytes) -> None:
        env = self._environment()
        env["TERM"] = message.get("term") or "xterm"
        own = (env.get("SHELL") or "/bin/sh", "-i") if self._container.environment is None else _SHELL_INSIDE
        size = (message["rows"], message["columns"])
        session = message["id"]
        tell = self._uplink.teller()
        try:
            argv = self._container.inside(tuple(message["argv"]) or own)
        except ContainerDown as error:
            tell({"t": "shell_exit", "id": session, "code": EXIT_INTERNAL, "text": error.text})
            return

        def finished(ended: TaskExit) -> None:
            code = ended.code if ended.code is not None else 128
            self._waiting.discard(session)
            tell({"t": "shell_exit", "id": session, "code": code, "text": ended.text})

        def printed(stream: int, data: bytes) -> None:
            tell({"t": "shell_output", "id": session}, data)
            if self._uplink.unacknowledged_bytes > _MOST_ON_ITS_WAY:
                self._waiting.add(session)
                self._tasks.pause_one(session, True)

        task = Task(session, argv, env, self._container.cwd, group="shell", terminal=size)
        self._run_task(task, finished, output=printed)

    def _input(self, message: dict[str, Any], body: bytes) -> None:
        if message.get("closed"):
            self._tasks.hang_up(message["id"])
        else:
            self._tasks.write(message["id"], body)

    def _resize(self, message: dict[str, Any], body: bytes) -> None:
        self._tasks.resize(message["id"], message["rows"], message["columns"])
