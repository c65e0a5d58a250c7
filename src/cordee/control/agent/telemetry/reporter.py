"""What this node measures and its ranks log, sent every few seconds: also when there is nothing, as a sign of life."""

from __future__ import annotations

import asyncio
from typing import Callable, Sequence

from cordee.control.agent.companions import Companions
from cordee.control.agent.machine import NodeTasks
from cordee.control.agent.node_log import NodeLog
from cordee.control.agent.ranks.channels import RankChannels
from cordee.control.agent.ranks.environment import rank_command
from cordee.control.agent.ranks.facts import RankFacts
from cordee.control.agent.ranks.layout import places_of_command
from cordee.control.agent.telemetry.gpus import GpuSampling
from cordee.control.agent.telemetry.node_telemetry import NodeTelemetry
from cordee.control.agent.troubles import NodeTroubles, words_of
from cordee.control.agent.uplink import Uplink
from cordee.control.launch import RankCommand
from cordee.control.world import AttemptWorld
from cordee.core.backends import backend_on_node
from cordee.core.clock import unix_s
from cordee.machine.slots import SlotAllocator
from cordee.machine.tasks.callbacks import WatchedTasks
from cordee.runs.folder import RunFolder
from cordee.runs.plan import RunPlan
from cordee.telemetry.node.metrics.side import OfferedMetrics
from cordee.wire.messages import Ack


class Reporting:
    """Samples the node and its ranks, and reports that and what the ranks log.

    Args:
        plan: the run's.
        folder: the run's.
        node: the node's name.
        machine, watched: the samplers, and what starts those that are processes.
        slots: learn what is measured of GPUs.
        channels, log: of the ranks.
        uplink: where it is told.
        troubles: told along; gets those of the measuring itself.
        pids: returns the main pid of each rank that runs.
        companions: tell which ranks do not go on and what they find; they are told what the driver says of GPUs.

    Attributes:
        add: takes whole records of others who measure.
    """

    def __init__(
        self,
        plan: RunPlan,
        folder: RunFolder,
        node: str,
        machine: NodeTasks,
        watched: WatchedTasks,
        slots: SlotAllocator,
        channels: RankChannels,
        log: NodeLog,
        uplink: Uplink,
        troubles: NodeTroubles,
        pids: Callable[[], dict[int, int]],
        companions: Companions,
    ) -> None:
        self._step, sampling = plan.step, plan.sampling
        self._interval_s = sampling.interval_s
        self._channels, self._log, self._uplink, self._troubles = channels, log, uplink, troubles
        self._pids = pids
        apart = backend_on_node(plan.backend, plan.backend_part).abilities.several_machines
        sharing = 1 if apart else self._step.request.nodes
        self._about = RankFacts(channels.folder / "ranks.json")
        samplers = machine.samplers(node, pids, sampling, sharing)
        told = self._about.facts, troubles.texts, companions.stands, companions.findings, companions.spent
        self._telemetry = NodeTelemetry(node, channels, pids, sampling, samplers, *told)
        path, add = self._about.path, self._telemetry.add
        self.add = add
        gpus = companions.gpus
        self._rank_ended = companions.rank_ended
        self._gpus = GpuSampling(watched, node, sampling, self._step, folder.node_zip, path, slots, add, gpus)
        self._offered = OfferedMetrics(watched, node, plan.metrics, folder.node_zip, path, add)

    def start(self) -> None:
        """Start the samplers that are processes."""
        self._gpus.start()
        self._offered.start()

    def begin(self, world: AttemptWorld, ranks: Sequence[RankCommand]) -> None:
        """Say what is known of ranks that are about to start."""
        self._about.begin(world, ranks)
        self._channels.say_first(places_of_command(world, rank_command(self._step, world), unix_s()))

    def connected(self) -> None:
        """Tell a supervisor, perhaps a new one, everything that is not stored yet."""
        self._telemetry.resend(self._uplink.say)

    def closed(self) -> None:
        """Nobody can be told for now."""
        self._telemetry.connected = False

    def stored(self, ack: Ack, body: bytes) -> None:
        """Forget what the supervisor has stored, and send what had to wait for that."""
        if ack.of is not None:
            self._uplink.lease.renew(ack.of)
        if self._telemetry.acknowledge(ack.sequence):
            self.send()

    def send(self) -> None:
        """Send what was measured and logged since the last time."""
        log = self._log
        counts = {"dropped_log_bytes": log.dropped_bytes, "queued_log_bytes": log.queued_bytes}
        self._telemetry.send(self._uplink.say, log.written, **counts)

    def rank_ended(self) -> None:
        """Send the last of what was measured and logged before it is told that a rank has ended."""
        self._rank_ended(self._troubles.tell)
        self.send()

    async def run(self, attempt: Callable[[], int]) -> None:
        """Sample and send, in step with the clock, for ever; `attempt` returns the number of the one that runs."""
        while True:
            await asyncio.sleep(self._interval_s - unix_s() % self._interval_s)
            for work in (
                self._channels.touch,
                lambda: self._about.write(self._pids()),
                lambda: self._telemetry.sample(attempt()),
                self.send,
            ):
                try:
                    work()
                except Exception as error:  # whatever it is: an agent that says nothing any more is taken for dead
                    self._troubles.tell(f"what this node measures is not complete: {words_of(error)}")
