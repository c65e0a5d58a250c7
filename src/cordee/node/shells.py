"""Shells that clients open on a node, in the environment of the ranks, each on a pseudo terminal."""

from __future__ import annotations

from typing import Any, Callable

from cordee.errors import EXIT_INTERNAL
from cordee.node.container import Container, ContainerDown
from cordee.node.tasks import Task, TaskExit, TaskRunner

# What an image has is not known before it is entered.
_SHELL_INSIDE = ("/bin/sh", "-c", "command -v bash >/dev/null && exec bash -i; exec sh -i")


class Shells:
    """The shells of one node.

    Args:
        tasks: the agent's tasks.
        run_task: starts one of them: `run_task(task, ended, output=...)`.
        send: sends a message with a body to the supervisor.
        environment: returns what a shell finds set.
        container: where it opens, and in which folder.

    Attributes:
        handlers: the messages that are meant for shells.
    """

    def __init__(
        self,
        tasks: TaskRunner,
        run_task: Callable[..., None],
        send: Callable[..., None],
        environment: Callable[[], dict[str, str]],
        container: Container,
    ) -> None:
        self._tasks, self._run_task, self._send = tasks, run_task, send
        self._environment, self._container = environment, container
        self.handlers: dict[str, Callable[[dict[str, Any], bytes], None]] = {
            "shell": self._open,
            "shell_input": self._input,
            "shell_resize": self._resize,
        }

    def _open(self, message: dict[str, Any], body: bytes) -> None:
        env = self._environment()
        env["TERM"] = message.get("term") or "xterm"
        own = (env.get("SHELL") or "/bin/sh", "-i") if self._container.environment is None else _SHELL_INSIDE
        size = (message["rows"], message["columns"])
        session = message["id"]
        try:
            argv = self._container.inside(tuple(message["argv"]) or own)
        except ContainerDown as error:
            self._send({"t": "shell_exit", "id": session, "code": EXIT_INTERNAL, "text": error.text})
            return

        def finished(ended: TaskExit) -> None:
            code = ended.code if ended.code is not None else 128
            self._send({"t": "shell_exit", "id": session, "code": code, "text": ended.text})

        def printed(stream: int, data: bytes) -> None:
            self._send({"t": "shell_output", "id": session}, data)

        task = Task(session, argv, env, self._container.cwd, group="shell", terminal=size)
        self._run_task(task, finished, output=printed)

    def _input(self, message: dict[str, Any], body: bytes) -> None:
        if message.get("closed"):
            self._tasks.hang_up(message["id"])
        else:
            self._tasks.write(message["id"], body)

    def _resize(self, message: dict[str, Any], body: bytes) -> None:
        self._tasks.resize(message["id"], message["rows"], message["columns"])
