"""What systems run beside the ranks of a node: one port that any number of them fill."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any, Callable, Mapping, NamedTuple, Optional, Sequence

from cordee.control.agent.orders import Handlers
from cordee.control.agent.troubles import NodeTroubles, words_of
from cordee.control.agent.uplink import Uplink
from cordee.core.clock import monotonic
from cordee.core.parts import load
from cordee.machine.gpus.model import Gpu
from cordee.machine.tasks.callbacks import WatchedTasks
from cordee.runs.plan import RunPlan
from cordee.wire.messages import NodeFinding, RankDigest, RankStand, SlowLink

# In `node_parts` of the plan, before the name of a system.
PORT = "companion/"
_LOOK_EVERY_S = 1.0


class CompanionHost(NamedTuple):
    """What the agent lends its companions.

    Attributes:
        attempt: returns the number of the attempt that this node has ranks of, 0 where there is none.
        pids: returns the main pid of each rank that runs.
        steps: returns the last step of each rank that says it.
        folder: returns the folder in which the agent and its ranks leave files for each other, in this node's memory.
        node_zip: on PYTHONPATH, what a module of the node side is run with.
        watched: starts processes.
        uplink: takes messages for the supervisor.
        add: takes whole records of telemetry.
    """

    attempt: Callable[[], int]
    pids: Callable[[], Mapping[int, int]]
    steps: Callable[[], Mapping[int, int]]
    folder: Callable[[], Path]
    node_zip: Path
    watched: WatchedTasks
    uplink: Uplink
    add: Callable[[bytes], None] = lambda records: None


class TimeSpent(NamedTuple):
    """What ranks did in windows that have ended, as `Telemetry` has it."""

    digests: Optional[tuple[RankDigest, ...]] = None
    links: tuple[SlowLink, ...] = ()


class Companion:
    """A system's part on one node, made by the agent when it starts. Its methods are called in the agent's loop: none may wait.

    Args:
        plan: the run's; `plan.step.systems` holds what the system planned.
        node: the node's name.
    """

    def __init__(self, plan: RunPlan, node: str) -> None:
        self.plan, self.node = plan, node

    def attach(self, host: CompanionHost) -> Handlers:
        """Take what the agent lends, once and before all else; return who takes which orders of the supervisor."""
        return {}

    def shown(self) -> tuple[str, ...]:
        """Return folders of this node that ranks must see, also in a container; asked once, before all else."""
        return ()

    def environment(self, env: dict[str, str], rank: int) -> dict[str, str]:
        """Return the environment of a rank that is about to start, with what the system adds to it."""
        return env

    def look(self, now: float) -> None:
        """Called every second; `now` is the loop's time."""

    def stands(self) -> tuple[RankStand, ...]:
        """Return which ranks have not gone on for some seconds, as the last look has seen them."""
        return ()

    def spent(self) -> TimeSpent:
        """Return what ranks did in the windows that have ended since this was called before."""
        return TimeSpent()

    def gpus(
        self, gpus: Sequence[Gpu], ranks: Mapping[str, Sequence[int]], xids: Sequence[tuple[str, int]] = ()
    ) -> None:
        """Called every ten seconds where GPUs are sampled, and at once for XIDs.

        Args:
            gpus: what the driver says of each; none where only XIDs are told.
            ranks: which are on it, by UUID.
            xids: UUID and number of each.
        """

    def findings(self) -> tuple[NodeFinding, ...]:
        """Return all that was found until now, each at its highest level."""
        return ()

    def rank_ended(self) -> None:
        """A rank has ended, and nobody was told yet: records that are added now come before that, also at the end of a run."""

    async def close(self) -> None:
        """The agent ends."""


class Companions:
    """All of them, in the order of their systems' names.

    Raises:
        CordeeError: the plan names one that is not there.
    """

    def __init__(self, plan: RunPlan, node: str) -> None:
        parts = (part for port, part in sorted(plan.node_parts.items()) if port.startswith(PORT))
        self._all: list[Companion] = [load(part)(plan, node) for part in parts]

    def shown(self) -> list[str]:
        """Return folders of this node that ranks must see."""
        return [folder for companion in self._all for folder in companion.shown()]

    def attach(self, host: CompanionHost) -> Handlers:
        """Lend all of them what the agent has; return who takes which orders: an order that several take is told to each."""
        takers: dict[type, list[Callable[[Any, bytes], None]]] = {}
        for companion in self._all:
            for order, take in companion.attach(host).items():
                takers.setdefault(order, []).append(take)
        return {order: partial(_tell_each, takes) for order, takes in takers.items()}

    def environment(self, env: dict[str, str], rank: int) -> dict[str, str]:
        """Return the environment of a rank with what all of them add."""
        for companion in self._all:
            env = companion.environment(env, rank)
        return env

    def stands(self) -> tuple[RankStand, ...]:
        """Return which ranks have not gone on for some seconds."""
        return tuple(stand for companion in self._all for stand in companion.stands())

    def spent(self) -> TimeSpent:
        """Return what ranks did in the windows that have ended since this was called before."""
        told = [companion.spent() for companion in self._all]
        digests = [one.digests for one in told if one.digests is not None]
        links = tuple(link for one in told for link in one.links)
        return TimeSpent(tuple(digest for some in digests for digest in some) if digests else None, links)

    def gpus(
        self, gpus: Sequence[Gpu], ranks: Mapping[str, Sequence[int]], xids: Sequence[tuple[str, int]] = ()
    ) -> None:
        """Tell all of them what the driver says of GPUs."""
        for companion in self._all:
            companion.gpus(gpus, ranks, xids)

    def findings(self) -> tuple[NodeFinding, ...]:
        """Return what all of them have found."""
        return tuple(found for companion in self._all for found in companion.findings())

    def rank_ended(self, tell: Callable[[str], None]) -> None:
        """A rank has ended: have all of them add what they know; what fails is told."""
        for companion in self._all:
            try:
                companion.rank_ended()
            except Exception as error:  # whatever it is: that the rank has ended must be told
                tell(f"what runs beside the ranks of this node has failed: {words_of(error)}")

    async def run(self, troubles: NodeTroubles, send: Callable[[], None]) -> None:
        """Have all of them look every second, for ever; what fails is told, and what is found is sent at once."""
        sent: dict[str, int] = {}
        while self._all:
            await asyncio.sleep(_LOOK_EVERY_S)
            for companion in self._all:
                try:
                    companion.look(monotonic())
                except Exception as error:  # whatever it is: the others look on
                    troubles.tell(f"what runs beside the ranks of this node has failed: {words_of(error)}")
            found = {one.cause: one.level for one in self.findings()}
            if found != sent:
                sent = found
                send()

    async def close(self) -> None:
        """The agent ends."""
        for companion in self._all:
            await companion.close()


def _tell_each(takes: Sequence[Callable[[Any, bytes], None]], order: Any, body: bytes) -> None:
    for take in takes:
        take(order, body)
