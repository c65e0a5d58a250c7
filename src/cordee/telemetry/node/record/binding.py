"""`--bind gpu`: the CPUs near a process's GPU, known before any library of the driver is loaded."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Mapping

from cordee.machine import sysfs

if TYPE_CHECKING:
    from cordee.telemetry.node.samplers.gpu.attribution import GpuView


def bind_near_gpu(environ: Mapping[str, str], root: str = "/") -> str:
    """Bind this process to the CPUs near its GPUs, inside those that it may use, and return what was done in words.

    Which GPUs are its own is told by its variables and by the kernel (/proc/driver/nvidia); where that leaves it open, or
    the kernel names no CPUs, the process is left as it is.

    Args:
        root: where /proc, /sys and /dev are seen.
    """
    from cordee.core.errors import CordeeError
    from cordee.machine.gpus.presence import gpu_variables
    from cordee.machine.inventory import read_slots
    from cordee.machine.slots import SlotAllocator
    from cordee.telemetry.node.samplers.gpu.attribution import of_rank

    seen = _seen(root)
    if not seen.devices:
        return "not bound: the kernel shows no NVIDIA GPU"
    mine = of_rank(gpu_variables(environ), seen)
    if not mine.devices:
        return f"not bound: {mine.reason}"
    try:
        given = SlotAllocator(lambda: read_slots(root)).give({"the command": tuple(mine.devices)})["the command"]
    except CordeeError as error:
        return f"not bound: {error.text}"
    if given.cpus is None:
        return given.words
    if given.cpus == os.sched_getaffinity(0):
        return f"{given.words}, where it was already"
    try:
        os.sched_setaffinity(0, given.cpus)
    except OSError as error:
        return f"not bound: {error.strerror}"
    return given.words


def _seen(root: str) -> GpuView:
    """Return the GPUs that this process may open, as the kernel's driver shows them."""
    from cordee.telemetry.node.samplers.gpu.attribution import GpuView, SeenGpu

    folder = os.path.join(root, "proc/driver/nvidia/gpus")
    found, hidden = [], 0
    for name in sorted(sysfs.names(folder)):
        lines = (sysfs.text(os.path.join(folder, name, "information")) or "").splitlines()
        told = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
        minor = told.get("Device Minor", "")
        if not minor.isdigit() or not os.access(os.path.join(root, f"dev/nvidia{minor}"), os.R_OK | os.W_OK):
            hidden += 1
            continue
        found.append(SeenGpu(told.get("GPU UUID", ""), told.get("Model", ""), name.rpartition(".")[0], int(minor)))
    return GpuView(tuple(found), hidden)
