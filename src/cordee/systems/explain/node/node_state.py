"""What a node says that may hold its ranks: the kernel's words, file systems without room, and those that do not answer."""

from __future__ import annotations

import os
from typing import Any, Iterable

from cordee.machine import sysfs
from cordee.machine.kernel_log import KernelLogClosed, read_kernel_log
from cordee.machine.limited import HangingError, answers_within
from cordee.machine.memory import MemorySource
from cordee.machine.mounts import mount_of, read_mounts
from cordee.systems.explain.node.hardware.kernel import tells

_MOST_LINES = 50
_LEAST_BYTES = 1 << 20
_KERNEL_LOG = "kernel log"


def state_of_node(paths: Iterable[str], most_s: float, since_s: float) -> dict[str, Any]:
    """Return what is known of this node.

    Args:
        paths: on the file systems that the run uses.
        most_s: how long to wait for answers, all asked at once by processes of their own.
        since_s: how old a line of the kernel's log may be.
    """
    mounts = read_mounts("/")
    points = sorted({mount.point for mount in (mount_of(path, mounts) for path in paths) if mount is not None})
    questions: dict[str, Any] = {point: lambda point=point: _room(point) for point in points}
    answers = answers_within(most_s, {**questions, _KERNEL_LOG: lambda: _kernel_lines(since_s)})
    said = answers.pop(_KERNEL_LOG)
    memory = MemorySource().read()
    return {
        "kernel_log": said if isinstance(said, list) else [],
        "full": [point for point in points if answers[point] is True],
        "hanging": [point for point in points if isinstance(answers[point], HangingError)],
        "load": (sysfs.text("/proc/loadavg", 128) or "").split()[:3],
        "memory_available_bytes": memory.available_bytes if memory is not None else None,
    }


def _room(point: str) -> bool:
    """Return whether a file system has no room or no inodes left."""
    told = os.statvfs(point)
    writable = not told.f_flag & os.ST_RDONLY
    return writable and (told.f_bavail * told.f_frsize < min(_LEAST_BYTES, told.f_blocks * told.f_frsize)
        or bool(told.f_files and not told.f_favail))  # fmt: skip


def _kernel_lines(since_s: float) -> list[str]:
    try:
        lines = read_kernel_log().lines
    except KernelLogClosed:
        return []
    found = [one.text[:500] for one in lines if (one.age_s is None or one.age_s <= since_s) and tells(one.text)]
    return found[-_MOST_LINES:]
