"""Processes as /proc shows them, for those who look for one that is stuck or greedy."""

from __future__ import annotations

import os
from typing import NamedTuple, Optional

from cordee.machine import sysfs


class ProcessUsage(NamedTuple):
    """One process at one moment.

    Attributes:
        pid, parent: its numbers.
        name: at most 15 characters, as the kernel keeps it.
        state: `R`, `S`, `D` (waits in the kernel, cannot be killed), `Z` (dead, not yet collected), ...
        user: number of the user who owns it.
        ticks: processor time so far, in clock ticks.
        started: when, in clock ticks since boot; with the pid it tells one process from the next.
    """

    pid: int
    parent: int
    name: str
    state: str
    user: int
    ticks: int
    started: int

    def describe(self) -> str:
        """Return name, pid and user for a person."""
        return f"{self.name} (pid {self.pid}, user {self.user})"


def processes(proc: str) -> dict[int, ProcessUsage]:
    """Return all processes by pid; those that end meanwhile are left out."""
    found = {}
    for name in sysfs.names(proc):
        if name.isdigit():
            process = read_process(proc, int(name))
            if process is not None:
                found[process.pid] = process
    return found


def read_process(proc: str, pid: int) -> Optional[ProcessUsage]:
    """Return a process, or None when it is gone."""
    folder = os.path.join(proc, str(pid))
    head, closed, tail = (sysfs.text(os.path.join(folder, "stat"), 4096) or "").rpartition(")")
    fields = tail.split()
    if not closed or len(fields) < 20:
        return None
    try:
        return ProcessUsage(
            pid=pid,
            parent=int(fields[1]),
            name=head.partition("(")[2],
            state=fields[0],
            user=_user(folder),
            ticks=int(fields[11]) + int(fields[12]),
            started=int(fields[19]),
        )
    except (OSError, ValueError):
        return None


def switches(proc: str, pid: int) -> Optional[int]:
    """Return how often a process has left the processor: one that is stuck never does again."""
    total = None
    for line in (sysfs.text(os.path.join(proc, str(pid), "status"), 8192) or "").splitlines():
        key, _, value = line.partition(":")
        if key.endswith("voluntary_ctxt_switches"):
            total = (total or 0) + int(value)
    return total


def waits_in(proc: str, pid: int) -> Optional[str]:
    """Return the kernel function that a process waits in, where the kernel lets us see it."""
    place = sysfs.text(os.path.join(proc, str(pid), "wchan"), 256)
    return place if place and place != "0" else None


def _user(folder: str) -> int:
    for line in (sysfs.text(os.path.join(folder, "status"), 8192) or "").splitlines():
        if line.startswith("Uid:"):
            return int(line.split()[1])
    return os.stat(folder).st_uid
