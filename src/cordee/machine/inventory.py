"""What a node has for tasks, as its kernel tells it: no driver's library is asked, so nothing hangs."""

from __future__ import annotations

import os
from typing import Collection

from cordee.machine import sysfs
from cordee.machine.gpus.affinity import gpu_addresses, near, numa_nodes
from cordee.machine.memory import MemorySource
from cordee.machine.slots import AllocatableGpu, Core, NodeSlots


def read_slots(root: str = "/") -> NodeSlots:
    """Return what this process may use of the node: its CPUs by core, all GPUs that are shown, memory to the control group's limit.

    Args:
        root: where /sys and /proc are seen.
    """
    allowed = os.sched_getaffinity(0)
    gpus = [AllocatableGpu(address, uuid, near(address, allowed, root)) for address, uuid in gpu_addresses(root)]
    memory = MemorySource(os.path.join(root, "proc")).read()
    return NodeSlots(tuple(_cores(allowed, root)), tuple(gpus), memory.total_bytes if memory is not None else 0)


def _cores(allowed: Collection[int], root: str) -> list[Core]:
    """Return the cores that these CPUs are of, in the order of their first CPUs."""
    nodes = {cpu: node for node, cpus in numa_nodes(root).items() for cpu in cpus}
    found: dict[str, set[int]] = {}
    for cpu in sorted(allowed):
        topology = os.path.join(root, f"sys/devices/system/cpu/cpu{cpu}/topology")
        siblings = sysfs.text(os.path.join(topology, "thread_siblings_list")) or str(cpu)
        found.setdefault(siblings, set()).add(cpu)
    return [Core(frozenset(cpus), nodes.get(min(cpus))) for cpus in found.values()]
