"""Processors, memory and network devices of a node."""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from cordee.machine import sysfs

_NAMED_BY_ADDRESS = re.compile(r"^enx[0-9a-f]{12}$")


class Machine(NamedTuple):
    """What a node is made of.

    Attributes:
        cpu_model: name of the first processor, empty when the kernel does not say.
        sockets, cores, threads: those that are online.
        numa_nodes: those that are online; 1 where the kernel knows of none.
        memory_bytes: what the kernel can use.
        nics: InfiniBand devices and network interfaces with hardware behind them, sorted; `enx*` stands for those that
            are named by their address, which no two nodes share.
    """

    cpu_model: str
    sockets: int
    cores: int
    threads: int
    numa_nodes: int
    memory_bytes: int
    nics: list[str]


def read_machine(root: str) -> Machine:
    """Return what a node is made of; what cannot be read is 0 or empty."""
    cpus = os.path.join(root, "sys/devices/system/cpu")
    online = count_list(sysfs.text(os.path.join(cpus, "online")) or "")
    places = set()
    for cpu in online:
        topology = os.path.join(cpus, f"cpu{cpu}", "topology")
        package = sysfs.text(os.path.join(topology, "physical_package_id")) or "0"
        places.add((package, sysfs.text(os.path.join(topology, "core_id")) or str(cpu)))
    nodes = count_list(sysfs.text(os.path.join(root, "sys/devices/system/node/online")) or "")
    meminfo = sysfs.text(os.path.join(root, "proc/meminfo")) or ""
    total = re.search(r"^MemTotal:\s*(\d+) kB", meminfo, re.MULTILINE)
    return Machine(
        cpu_model=cpu_field(root, "model name"),
        sockets=len({package for package, _ in places}),
        cores=len(places),
        threads=len(online),
        numa_nodes=len(nodes) or 1,
        memory_bytes=int(total.group(1)) * 1024 if total else 0,
        nics=_nics(root),
    )


def cpu_field(root: str, key: str) -> str:
    """Return what /proc/cpuinfo says of the first processor, or an empty text."""
    content = sysfs.text(os.path.join(root, "proc/cpuinfo")) or ""
    match = re.search(rf"^{re.escape(key)}\s*:\s*(.+)$", content, re.MULTILINE)
    return match.group(1).strip() if match else ""


def count_list(content: str) -> list[int]:
    """Return the numbers of a kernel list such as `0-3,8`."""
    found: list[int] = []
    for part in content.split(","):
        first, _, last = part.strip().partition("-")
        if first.isdigit() and (last or first).isdigit():
            found += range(int(first), int(last or first) + 1)
    return found


def _nics(root: str) -> list[str]:
    interfaces = os.path.join(root, "sys/class/net")
    found = [name for name in sysfs.names(interfaces) if os.path.exists(os.path.join(interfaces, name, "device"))]
    found = [_NAMED_BY_ADDRESS.sub("enx*", name) for name in found]
    return sorted(found + sysfs.names(os.path.join(root, "sys/class/infiniband")))
