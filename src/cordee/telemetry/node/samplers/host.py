"""The samplers of a node and of its ranks, put together from what the node can tell."""

from __future__ import annotations

from typing import Any, Callable, Optional, Sequence, Union

from cordee.machine.machine import read_machine
from cordee.telemetry.node.samplers._base import Sampler
from cordee.telemetry.node.samplers.cpu_queue import CpuQueue
from cordee.telemetry.node.samplers.fabric import FabricSampler
from cordee.telemetry.node.samplers.perf import InstructionsPerCycle
from cordee.telemetry.node.samplers.power import PowerSampler
from cordee.telemetry.node.samplers.pressure import PressureSampler
from cordee.telemetry.node.samplers.proc import NodeSampler, RankSampler
from cordee.telemetry.node.samplers.rank_part import RankPart
from cordee.telemetry.node.samplers.share import CoreShares
from cordee.telemetry.node.samplers.storage.disks import JobDiskSampler
from cordee.telemetry.node.samplers.storage.sampler import StorageSampler
from cordee.telemetry.node.samplers.threads import BusiestThread

_DEEP_FROM_S = 1.0
_LIST_EVERY_S = 0.9  # new processes are looked for once a second, however short the cadence
_SHALLOW = "not sampled at this cadence: threads are looked at where samples are at least 1 s apart"


class HostSampler(Sampler):
    """One device, the node, measured by several samplers; those that cannot measure here are left out, with the reason.

    Args:
        node: the node's name.
        parts: its samplers.
        about: facts of the node.
    """

    def __init__(self, node: str, parts: Sequence[Sampler], about: dict[str, Any]) -> None:
        super().__init__()
        self._node = node
        self._about = about
        self._parts: list[Sampler] = []
        self._never: dict[str, str] = {}
        for part in parts:
            reason = part.probe()
            if reason is None:
                self._parts.append(part)
            else:
                self._never.update({described["name"]: reason for described in part.metrics()})
                self._never.update(part.missing)
                part.close()

    def probe(self) -> Optional[str]:
        """Return None, or why nothing at all can be measured."""
        return None if self._parts else "; ".join(sorted(set(self._never.values())))

    def metrics(self) -> list[dict[str, str]]:
        """Return the metrics of the parts."""
        return [described for part in self._parts for described in part.metrics()]

    def devices(self) -> list[Union[str, int]]:
        """Return the node's name."""
        return [self._node]

    def facts(self) -> dict[str, dict[str, Any]]:
        """Return what the node is made of and what the parts know."""
        about = dict(self._about)
        for part in self._parts:
            about.update(part.facts().get(self._node, {}))
        return {self._node: about}

    def sample(self) -> list[float]:
        """Return the node's values."""
        values = [value for part in self._parts for value in part.sample()]
        self.missing = dict(self._never)
        for part in self._parts:
            self.missing.update(part.missing)
        return values

    def close(self) -> None:
        """Close the parts."""
        for part in self._parts:
            part.close()


def node_sampler(node: str, proc: str = "/proc", sys: str = "/sys") -> HostSampler:
    """Return the sampler of a node: processors, memory, disks, network, fabric, pressure, shared storage, power.

    Args:
        node: the node's name.
        proc, sys: where /proc and /sys are.
    """
    machine = read_machine("/")
    about = {
        "model": machine.cpu_model,
        "cpus": machine.threads,
        "cores": machine.cores,
        "sockets": machine.sockets,
        "numa_nodes": machine.numa_nodes,
        "memory_bytes": machine.memory_bytes,
    }
    parts = [
        NodeSampler(node, proc, sys),
        FabricSampler(node, sys),
        PressureSampler(node, proc),
        JobDiskSampler(node, proc, sys),
        StorageSampler(node, proc, sys),
        PowerSampler(node, sys),
    ]
    return HostSampler(node, parts, about)


def rank_sampler(
    processes: Callable[[], dict[int, int]], cadence_s: float, *, sharing: int = 1, deep: Optional[bool] = None
) -> RankSampler:
    """Return the sampler of a node's ranks: processor time and the cores it is a share of, memory, storage, threads.

    Args:
        processes: returns the pid of the main process of each global rank that runs on this node.
        cadence_s: seconds between samples.
        sharing: how many nodes of a local run share this machine.
        deep: look at threads and at the processor's counters; None: where samples are at least 1 s apart.
    """
    deep = cadence_s >= _DEEP_FROM_S if deep is None else deep
    parts: list[RankPart] = [CoreShares(sharing=sharing)]
    parts += (
        [BusiestThread(), CpuQueue(), InstructionsPerCycle()]
        if deep
        else [_Unlooked(["thread_busiest_ratio", "cpu_queued_ratio", "instructions_per_cycle"])]
    )
    return RankSampler(processes, parts=parts, list_every_s=0.0 if cadence_s >= _LIST_EVERY_S else _LIST_EVERY_S)


class _Unlooked(RankPart):
    """Metrics that are not sampled, for the sake of their cost."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__()
        self.missing = dict.fromkeys(names, _SHALLOW)

    def metrics(self) -> list[dict[str, str]]:
        """Return none."""
        return []

    def sample(self, roots: Any, looks: Any, elapsed_s: float) -> dict[int, list[float]]:
        """Return no value of any rank."""
        return {rank: [] for rank in looks}
