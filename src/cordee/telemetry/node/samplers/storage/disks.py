"""What the job itself reads from and writes to local disks, as its cgroup counts it: io.stat of version 2, blkio of version 1."""

from __future__ import annotations

import os
from typing import Any, Optional, Union

from cordee.machine.cgroups import Cgroup, groups_of, job_group
from cordee.machine.files import KernelFile
from cordee.telemetry.node.catalogue import described
from cordee.telemetry.node.samplers._base import FIRST, NAN, CounterGrowth, Sampler, rate

_NAMES = ("job_disk_read_bytes_per_second", "job_disk_write_bytes_per_second")
_FILES = {2: ("io.stat",), 1: ("blkio.throttle.io_service_bytes_recursive", "blkio.throttle.io_service_bytes")}
_NONE = "this job has no cgroup of its own that counts disk traffic (the io or blkio controller is off)"


class JobDiskSampler(Sampler):
    """Bytes of the job's cgroup, summed over disks; devices stacked on others are left out, they would count twice.

    A disk that the cgroup has not used has no line; that is zero.

    Args:
        node: the node's name.
        proc, sys: where /proc and /sys are.
    """

    def __init__(self, node: str, proc: str = "/proc", sys: str = "/sys") -> None:
        super().__init__()
        self._node = node
        self._sys = sys
        self._growth = CounterGrowth()
        self._stacked: dict[bytes, bool] = {}
        self._file = _counting_file(proc)
        source = f"cgroup {os.path.basename(self._file.path)}" if self._file else ""
        self._metrics = [described(name, source) for name in _NAMES]

    def probe(self) -> Optional[str]:
        """Return why the job's traffic is not counted, or None."""
        return None if self._file is not None else _NONE

    def metrics(self) -> list[dict[str, str]]:
        """Return both metrics."""
        return self._metrics

    def devices(self) -> list[Union[str, int]]:
        """Return the node's name."""
        return [self._node]

    def facts(self) -> dict[str, dict[str, Any]]:
        """Return the cgroup that is counted."""
        return {self._node: {"job_disk_of": os.path.dirname(self._file.path) if self._file else ""}}

    def sample(self) -> list[float]:
        """Return both rates."""
        self.missing = {}
        self._growth.tick()
        content = self._file.read() if self._file is not None else None
        sums = (None, None) if content is None else self._sums(content)
        values = []
        for name, total in zip(_NAMES, sums):
            value = rate(self._growth.of(name, total), self._growth.elapsed_s)
            if value != value:
                self.missing[name] = FIRST if total is not None else (self._file and self._file.reason) or _NONE
                value = NAN
            values.append(value)
        return values

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def _sums(self, content: bytes) -> tuple[float, float]:
        read = written = 0.0
        for line in content.splitlines():
            fields = line.split()
            if len(fields) < 2 or b":" not in fields[0] or self._is_stacked(fields[0]):
                continue
            counts = dict(field.split(b"=", 1) for field in fields[1:] if b"=" in field)
            if not counts and len(fields) == 3:
                counts = {{b"Read": b"rbytes", b"Write": b"wbytes"}.get(fields[1], b""): fields[2]}
            read += _number(counts.get(b"rbytes"))
            written += _number(counts.get(b"wbytes"))
        return read, written

    def _is_stacked(self, device: bytes) -> bool:
        """Return whether a block device (`253:0`) lies on others, such as a volume of LVM, or on a file (a loop device)."""
        known = self._stacked.get(device)
        if known is None:
            folder = f"{self._sys}/dev/block/{device.decode(errors='replace')}"
            known = os.path.exists(f"{folder}/loop")
            try:
                known = known or bool(os.listdir(f"{folder}/slaves"))
            except OSError:
                pass
            self._stacked[device] = known
        return known


def _counting_file(proc: str) -> Optional[KernelFile]:
    """Return the file that counts the job's traffic: of the job's cgroup, else of the process's own."""
    groups = groups_of("blkio", proc) + [group for group in groups_of("io", proc) if group.version == 2]
    for version in (2, 1):
        job = job_group([group for group in groups if group.version == version and not _is_root(group)])
        for name in _FILES[version] if job is not None else ():
            file = KernelFile(f"{job.folder}/{name}" if job is not None else "")
            if file.read() is not None:
                return file
    return None


def _is_root(group: Cgroup) -> bool:
    """Return whether a cgroup is the machine's: only that of version 1 has a release agent, only that of 2 no events."""
    if group.version == 1:
        return os.path.exists(f"{group.folder}/release_agent")
    return not os.path.exists(f"{group.folder}/cgroup.events")


def _number(text: Optional[bytes]) -> float:
    return float(text) if text is not None and text.isdigit() else 0.0
