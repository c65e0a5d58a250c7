"""The start-up commands of an environment on a node of a run: one Task in the container, before anything else enters it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Awaitable, Callable, Sequence

from cordee.core.errors import CordeeError
from cordee.machine.tasks.shell_lines import environment_in, failed_line, lines_shell, lost_environment, timings_in
from cordee.machine.tasks.task import Task, TaskExit
from cordee.systems.environments.node.document import Environment
from cordee.systems.environments.node.engines.namespace.startup import WHAT, told, where
from cordee.systems.environments.node.patches import patches_between

_TASK = "start-up"


class NodeStartup:
    """Runs them once each time the container opens, and keeps what they leave.

    Args:
        environment: whose they are.
        place: a folder of the host that is seen inside at its own path, and can be written.

    Attributes:
        left: how they changed the environment, as `node.patches` has it.
        told: how long they took, for people; empty where there are none.
    """

    def __init__(self, environment: Environment, place: str) -> None:
        self._environment, self._place = environment, place
        self.left: list[tuple[str, str, str]] = []
        self.told = ""

    def forget(self) -> None:
        """Keep nothing of a container that is gone."""
        self.left, self.told = [], ""

    async def run(
        self,
        here: Environment,
        run: Callable[[Task], Awaitable[TaskExit]],
        wrap: Callable[[Sequence[str]], Sequence[str]],
        cwd: str,
    ) -> None:
        """Run the commands in the open container.

        Args:
            here: the environment as this node has it, whose hooks may have added commands.
            run: starts a task and returns how it ended.
            wrap: puts the words before a command that lead inside.
            cwd: where its process begins on the host.

        Raises:
            CordeeError: one failed, or took too long.
        """
        if not here.startup:
            return
        lines = list(here.startup)
        before = here.variables(os.environ)
        output = Path(self._place) / f"start-up-{os.getpid()}"
        output.touch(mode=0o600)
        argv = tuple(wrap(lines_shell(lines, str(output), True, "")))
        try:
            task = Task(_TASK, argv, before, cwd, deadline_s=here.startup_s, keeps_children=True)
            ended = await run(task)
            found = output.read_bytes()
        finally:
            output.unlink()
        timings = timings_in(found)
        lost = lost_environment(found, ended.code if ended.reason == "exited" else None, lines, WHAT)
        if lost is not None:
            raise CordeeError(lost[0], given=lost[1], next=lost[2])
        if ended.code != 0 or ended.reason != "exited":
            raise _failed(lines, failed_line(timings, len(lines)), ended, here.startup_s)
        after = environment_in(found)
        # The runner's own mark of a task, which every task has anew.
        self.left = [patch for patch in patches_between(before, after) if patch[1] not in ("CORDEE_TASK",)]
        self.told = told(lines, [(each.number, each.seconds) for each in timings], ended.seconds)


def _failed(lines: list[str], failed: int, ended: TaskExit, limit_s: float) -> CordeeError:
    how = f"ended with exit code {ended.code}"
    what = f"correct it in {where(lines[failed - 1])}; what it printed is in `cordee logs`"
    if ended.reason == "deadline":
        how, what = f"did not end within {limit_s:g} s", "give more time by `[startup] timeout`, or correct the command"
    elif ended.code is None:
        how = ended.text or f"ended by {ended.signal or ended.reason}"
    return CordeeError(f"{WHAT} {failed} of {len(lines)} {how}", given=lines[failed - 1], next=what)
