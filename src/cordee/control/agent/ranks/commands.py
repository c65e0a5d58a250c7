"""What the ranks of an attempt run on this node: commands, environments, channels, cores."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Callable, Optional

from cordee.control.agent.enclosure import Enclosure
from cordee.control.agent.ranks.binding import bound
from cordee.control.agent.ranks.channels import RankChannels
from cordee.control.agent.ranks.environment import base_environment, rank_command, rank_environment, threads_of_rank
from cordee.control.launch import RankCommand
from cordee.control.world import AttemptWorld
from cordee.machine.slots import SlotAllocator
from cordee.runs.plan import RunPlan


class RankEnvironment:
    """The environment that ranks, checks and shells of this node begin with.

    Args:
        make: returns it as it is before set-up lines: what the enclosure brings is known once that is up.
    """

    def __init__(self, make: Callable[[], dict[str, str]]) -> None:
        self._make = make
        self._left: Optional[dict[str, str]] = None

    @property
    def base(self) -> dict[str, str]:
        """Before the set-up lines."""
        return self._make()

    @property
    def now(self) -> dict[str, str]:
        """As these left it, if they ran."""
        return dict(self._left) if self._left is not None else self._make()

    @now.setter
    def now(self, left: dict[str, str]) -> None:
        self._left = left


class RankCommands:
    """Makes the commands of ranks.

    Args:
        plan: the run's.
        enclosure: that they run in.
        channels: of which each rank gets one.
        environment: that they begin with.
        slots: of which each rank gets its part.
        offer: adds to one rank's environment what runs beside it offers: `offer(env, rank)`.
    """

    def __init__(
        self,
        plan: RunPlan,
        enclosure: Enclosure,
        channels: RankChannels,
        environment: RankEnvironment,
        slots: SlotAllocator,
        offer: Callable[[dict[str, str], int], dict[str, str]],
    ) -> None:
        self._plan, self._step = plan, plan.step
        self._enclosure, self._channels, self._environment = enclosure, channels, environment
        self._slots, self._offer = slots, offer

    def of(self, world: AttemptWorld) -> list[RankCommand]:
        """Return the commands of this node's ranks, whose channels are made.

        Raises:
            EnclosureDown: what they are to run in is not there.
            NoRoom: for a channel.
            CannotGive: another holds what they need.
        """
        argv = self._enclosure.wrap_rank(rank_command(self._step, world))
        outside = base_environment(os.environ) if self._enclosure.encloses else None
        ranks, now = [], self._environment.now
        for rank in world.local_ranks:
            channel = self._channels.create(world.attempt, rank)
            env = rank_environment(now, self._plan, world, rank, channel)
            ranks.append(RankCommand(rank, argv, self._offer(env, rank), self._enclosure.cwd, outside))
        placed = bound(ranks, self._step, world.attempt, self._slots)
        return [self._with_threads(rank, world) for rank in placed]

    def _with_threads(self, rank: RankCommand, world: AttemptWorld) -> RankCommand:
        """Return the rank with a number of threads that fits its cores, unless somebody has said one."""
        threads = threads_of_rank(self._plan, world, rank.given.cores, len(self._slots.has.cores))
        return replace(rank, env={"OMP_NUM_THREADS": str(threads), **rank.env})
