"""What this machine is, from /proc, /sys and device files: no import, no program is started."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

_NVIDIA_DEVICE = re.compile(r"nvidia\d+\Z")


def this_machine(root: Path = Path("/")) -> dict[str, Any]:
    """Return cores, memory in bytes and the number of GPUs that this process may use.

    Args:
        root: where `proc`, `sys` and `dev` are looked for.
    """
    return {"cores": _cores(root), "memory": _memory_bytes(root), "gpus": _gpus(root)}


def _cores(root: Path) -> int:
    cores = len(os.sched_getaffinity(0))
    quota = _words(_own_cgroup(root) / "cpu.max")
    if len(quota) == 2 and quota[0].isdigit() and int(quota[1]) > 0:
        cores = min(cores, max(1, -(-int(quota[0]) // int(quota[1]))))
    return cores


def _memory_bytes(root: Path) -> int | None:
    sizes = []
    for line in _text(root / "proc/meminfo").splitlines():
        if line.startswith("MemTotal:"):
            sizes.append(int(line.split()[1]) * 1024)
    limit = _words(_own_cgroup(root) / "memory.max")
    if limit and limit[0].isdigit():
        sizes.append(int(limit[0]))
    return min(sizes) if sizes else None


def _gpus(root: Path) -> int:
    counts = [len(list((root / "proc/driver/nvidia/gpus").glob("*")))]
    try:
        counts.append(sum(bool(_NVIDIA_DEVICE.match(name)) for name in os.listdir(root / "dev")))
    except OSError:
        pass
    nodes = (root / "sys/class/kfd/kfd/topology/nodes").glob("*/properties")
    counts.append(sum("simd_count 0\n" not in _text(node) and "simd_count" in _text(node) for node in nodes))
    return max(counts)


def _own_cgroup(root: Path) -> Path:
    for line in _text(root / "proc/self/cgroup").splitlines():
        if line.startswith("0::"):
            return root / "sys/fs/cgroup" / line[3:].lstrip("/")
    return root / "sys/fs/cgroup"


def _words(path: Path) -> list[str]:
    return _text(path).split()


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
