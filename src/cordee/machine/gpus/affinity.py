"""Which CPUs are near a GPU: on NUMA nodes that have CPUs, inside the mask."""

from __future__ import annotations

import os
from typing import Collection

from cordee.machine import sysfs
from cordee.machine.machine import count_list


def numa_nodes(root: str = "/") -> dict[int, frozenset[int]]:
    """Return the CPUs of the NUMA nodes that have some; nodes of memory alone (a GPU's on Grace Hopper) are left out."""
    folder = os.path.join(root, "sys/devices/system/node")
    found = {}
    for name in sysfs.names(folder):
        if name.startswith("node") and name[4:].isdigit():
            cpus = count_list(sysfs.text(os.path.join(folder, name, "cpulist")) or "")
            if cpus:
                found[int(name[4:])] = frozenset(cpus)
    return found


def near(address: str, allowed: Collection[int], root: str = "/") -> frozenset[int]:
    """Return the allowed CPUs that are local to a PCI device; none when the kernel does not say or none is allowed.

    What the kernel calls local is all CPUs of the machine where it does not know; that counts as not said.

    Args:
        address: `0000:18:00`, with or without the function, or with a domain of eight digits as NVML writes it.
        allowed: CPUs that may be used.
        root: where /sys is seen.
    """
    nodes = numa_nodes(root)
    everything = frozenset().union(*nodes.values())
    folder = os.path.join(root, "sys/bus/pci/devices", _function(address))
    node = sysfs.number(os.path.join(folder, "numa_node"))
    local = frozenset(count_list(sysfs.text(os.path.join(folder, "local_cpulist")) or "")) & everything
    if node is not None and node in nodes:
        local = nodes[node]
    if not local or (local == everything and len(nodes) > 1):
        return frozenset()
    return local & frozenset(allowed)


def gpu_addresses(root: str = "/") -> list[tuple[str, str]]:
    """Return (PCI address, UUID or empty) of the GPUs that the kernel's drivers show, in the order of their addresses.

    Sources: /proc/driver/nvidia/gpus, and for AMD the `unique_id` beside the driver in /sys/bus/pci/drivers/amdgpu.
    """
    found = []
    folder = os.path.join(root, "proc/driver/nvidia/gpus")
    for name in sysfs.names(folder):
        lines = (sysfs.text(os.path.join(folder, name, "information")) or "").splitlines()
        uuids = [line.partition(":")[2].strip() for line in lines if line.startswith("GPU UUID")]
        found.append((name.rpartition(".")[0] or name, uuids[0] if uuids else ""))
    folder = os.path.join(root, "sys/bus/pci/drivers/amdgpu")
    for name in sysfs.names(folder):
        if name.count(":") == 2:
            unique = sysfs.text(os.path.join(folder, name, "unique_id")) or ""
            found.append((name.rpartition(".")[0], f"GPU-{unique}" if unique else ""))
    return sorted(found)


def range_list(cpus: Collection[int]) -> str:
    """Return numbers as the kernel writes them: `0-3,8`."""
    parts: list[list[int]] = []
    for cpu in sorted(cpus):
        if parts and parts[-1][1] == cpu - 1:
            parts[-1][1] = cpu
        else:
            parts.append([cpu, cpu])
    return ",".join(f"{first}-{last}" if first != last else str(first) for first, last in parts)


def _function(address: str) -> str:
    """Return a PCI address as the kernel writes it, with the function."""
    domain, _, rest = address.lower().partition(":")
    return f"{int(domain, 16):04x}:{rest}" + ("" if "." in rest else ".0")
