"""The seam between an agent and whatever starts the ranks of an attempt."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Collection, Optional, Protocol, Sequence

from cordee.control.world import AttemptWorld
from cordee.machine.slots import NOTHING_GIVEN, Given, SlotAllocator
from cordee.machine.tasks.callbacks import WatchedTasks
from cordee.machine.tasks.task import TaskExit
from cordee.wire.messages import PoolTasks


@dataclass(frozen=True)
class RankCommand:
    """One rank as it is to run: its global number, its command and its whole environment.

    `outside` is the environment of what starts it on the host, where that is not the rank's own: for a rank in a container.
    `given` is what it was given of the node.
    """

    rank: int
    argv: tuple[str, ...]
    env: dict[str, str]
    cwd: str
    outside: Optional[dict[str, str]] = None
    given: Given = NOTHING_GIVEN


class LaunchHost(Protocol):
    """What a launch needs of its agent, and what it tells it; `watched` starts processes, `slots` gives them their parts of the node."""

    watched: WatchedTasks
    slots: SlotAllocator

    def pool_news(self, world: AttemptWorld, body: bytes) -> None:
        """Something became of tasks of the attempt's pool."""

    @property
    def meeting_place(self) -> Path:
        """A folder in this node's memory that only this run uses; `<node>` below the same parent on every node."""

    def rank_started(self, world: AttemptWorld, rank: int, pid: int) -> None:
        """A rank of this node runs."""

    def rank_output(self, world: AttemptWorld, rank: int, stream: int, data: bytes) -> None:
        """A rank printed; rank -1 is the launcher itself."""

    def rank_ended(self, world: AttemptWorld, rank: int, ended: TaskExit) -> None:
        """A rank has ended, its output has been passed on, and nothing that it started is left."""


class Launch:
    """The ranks of one attempt on one node. Called by the agent on its loop; nothing here blocks or raises.

    Whatever happens, `host.rank_ended` is called once for each rank that `start` was given, until `abandon`.

    Args:
        host: the agent.
        world: the attempt's world as this node sees it.
    """

    def __init__(self, host: LaunchHost, world: AttemptWorld) -> None:
        self.host, self.world = host, world

    @property
    def group(self) -> str:
        """The name by which the supervisor stops and signals the attempt's ranks."""
        return f"ranks-{self.world.attempt}"

    def start(self, ranks: Sequence[RankCommand]) -> None:
        """Start the ranks of this node."""
        raise NotImplementedError("a launch starts ranks")

    def signal(self, number: int) -> None:
        """Send a signal to the main process of each rank of this node, and to nothing else."""
        raise NotImplementedError("a launch signals ranks")

    def stop(self, grace_s: float) -> None:
        """End the ranks of this node: SIGTERM now, SIGKILL to all their processes `grace_s` later."""
        raise NotImplementedError("a launch ends ranks")

    def abandon(self) -> None:
        """End the ranks of this node at once and report nothing more: the attempt belongs to the past."""
        raise NotImplementedError("a launch abandons ranks")

    def keep(self) -> bool:
        """Another supervisor leads the run: report nothing more until `go_on`, and return whether something runs on for it.

        Ranks do not: what they did meanwhile is unknown.
        """
        self.abandon()
        return False

    @property
    def kept(self) -> Collection[str]:
        """The ids of the Tasks that run on after `keep`."""
        return ()

    def go_on(self, host: LaunchHost, world: AttemptWorld) -> None:
        """What was kept belongs to this attempt; `start` follows."""
        self.host, self.world = host, world

    async def settle(self, most_s: float) -> None:
        """Wait until nothing but ended ranks is left of the launch, at most so long."""

    def pids(self) -> dict[int, int]:
        """Return the main pid of each rank of this node that runs."""
        raise NotImplementedError("a launch knows its ranks")

    def take_tasks(self, order: PoolTasks, body: bytes) -> None:
        """Take tasks for a pool; a launch of ranks is given none."""
        raise NotImplementedError("this launch has no pool of tasks")

    def pause_output(self, paused: bool) -> None:
        """Stop or go on reading what the ranks print, beyond what the host's tasks print."""
