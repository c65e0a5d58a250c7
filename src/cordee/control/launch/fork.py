"""Ranks as children of the agent, each of them a Task."""

from __future__ import annotations

from functools import partial
from typing import Sequence

from cordee.control.launch._base import Launch, LaunchHost, RankCommand
from cordee.control.world import AttemptWorld
from cordee.machine.tasks.task import Task, TaskExit


class ForkLaunch(Launch):
    """Forks the ranks; see Launch."""

    def __init__(self, host: LaunchHost, world: AttemptWorld) -> None:
        super().__init__(host, world)
        self._ranks: list[int] = []
        self._abandoned = False

    def start(self, ranks: Sequence[RankCommand]) -> None:
        """Start one Task for each rank."""
        self._ranks = [command.rank for command in ranks]
        for command in ranks:
            rank = command.rank
            self.host.watched.run_task(
                Task(
                    self._task(rank), command.argv, command.env, command.cwd, group=self.group, cpus=command.given.cpus
                ),
                partial(self._ended, rank),
                started=partial(self.host.rank_started, self.world, rank),
                output=partial(self.host.rank_output, self.world, rank),
            )

    def signal(self, number: int) -> None:
        """Send a signal to the main process of each rank."""
        self.host.watched.tasks.signal(self.group, number)

    def stop(self, grace_s: float) -> None:
        """End the Tasks of the attempt."""
        self.host.watched.tasks.stop(self.group, grace_s)

    def abandon(self) -> None:
        """Kill the Tasks of the attempt and report nothing more."""
        self._abandoned = True
        self.stop(0.0)

    def pids(self) -> dict[int, int]:
        """Return the main pid of each rank that runs."""
        pids = {rank: self.host.watched.tasks.pid(self._task(rank)) for rank in self._ranks}
        return {rank: pid for rank, pid in pids.items() if pid is not None}

    def _task(self, rank: int) -> str:
        return f"rank-{self.world.attempt}-{rank}"

    def _ended(self, rank: int, ended: TaskExit) -> None:
        if not self._abandoned:
            self.host.rank_ended(self.world, rank, ended)
