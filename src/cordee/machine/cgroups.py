"""Where a process's cgroups are seen, of version 1 and 2, from its own folder up to the highest that is visible."""

from __future__ import annotations

import os
import re
from typing import NamedTuple, Optional

from cordee.machine.files import KernelFile, read_once

_JOB = re.compile(r"job_\d+$")


class Cgroup(NamedTuple):
    """A folder of the cgroup tree, and the version (1 or 2) of the hierarchy that it is part of."""

    version: int
    folder: str


def groups_of(controller: str, proc: str = "/proc", pid: str = "self") -> list[Cgroup]:
    """Return the cgroups of a process in the hierarchies that may hold `controller`, each upwards from its own.

    Version 2 has one hierarchy for all controllers; whether one is switched on shows in the files of each folder.

    Args:
        controller: as version 1 names it: `memory`, `cpu`.
        proc: where /proc is.
        pid: which process; inside a container the paths are those seen there.
    """
    try:
        lines = read_once(f"{proc}/{pid}/cgroup").decode(errors="replace").splitlines()
        mounts = KernelFile(f"{proc}/self/mountinfo")
        table = (mounts.read() or b"").decode(errors="replace").splitlines()
        mounts.close()
    except OSError:
        return []
    found = []
    for line in lines:
        if line.count(":") < 2:
            continue
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        for root, point in _mounts(table, controller, 1 if controllers else 2):
            found += [Cgroup(1 if controllers else 2, folder) for folder in _upwards(point, _below(root, path))]
    return found


def job_group(groups: list[Cgroup]) -> Optional[Cgroup]:
    """Return the cgroup that Slurm made for the whole job (`job_<id>`), else the process's own; None without any."""
    named = [group for group in groups if _JOB.match(os.path.basename(group.folder))]
    return named[0] if named else groups[0] if groups else None


def quota_cores(proc: str = "/proc", pid: str = "self") -> Optional[float]:
    """Return how many CPUs' time a process may use per second at most by the quotas of its cgroups; None: no quota."""
    quotas = []
    for group in groups_of("cpu", proc, pid):
        try:
            if group.version == 2:
                most, period = read_once(os.path.join(group.folder, "cpu.max")).split()
            else:
                most = read_once(os.path.join(group.folder, "cpu.cfs_quota_us"))
                period = read_once(os.path.join(group.folder, "cpu.cfs_period_us"))
            if most != b"max" and int(most) > 0:
                quotas.append(int(most) / int(period))
        except (OSError, ValueError, ZeroDivisionError):
            continue
    return min(quotas, default=None)


def _mounts(table: list[str], controller: str, version: int) -> list[tuple[str, str]]:
    """Return (root inside the hierarchy, mount point) of the hierarchies of this version that may hold the controller."""
    kind = "cgroup2" if version == 2 else "cgroup"
    found = []
    for line in table:
        left, _, right = line.partition(" - ")
        fields, rest = left.split(), right.split()
        if len(fields) > 4 and rest and rest[0] == kind and (version == 2 or controller in rest[-1].split(",")):
            found.append((fields[3], fields[4]))
    return found


def _below(root: str, path: str) -> str:
    if root != "/" and (path == root or path.startswith(root + "/")):
        return path[len(root) :].strip("/")
    return path.strip("/") if root == "/" else ""


def _upwards(point: str, relative: str) -> list[str]:
    folders = [point]
    for part in relative.split("/") if relative else ():
        folders.append(os.path.join(folders[-1], part))
    return folders[::-1]
