"""What held the job back: waiting for CPUs, memory and storage (PSI), and being stopped by a CPU quota."""

from __future__ import annotations

import os
from typing import Any, Optional, Union

from cordee.machine.cgroups import groups_of, job_group, quota_cores
from cordee.machine.files import KernelFile
from cordee.telemetry.node.catalogue import WHOLE_MACHINE, described
from cordee.telemetry.node.samplers._base import FIRST, NAN, CounterGrowth, Sampler, rate

_KINDS = ("cpu", "memory", "io")
_NO_PSI = "the kernel does not tell pressure (PSI is off: the boot option psi=1 turns it on)"


class PressureSampler(Sampler):
    """Pressure of the job's cgroup where version 2 shows it, else of the whole machine: `source` says which.

    The throttled ratio is the share of quota periods in which the cgroup, or one above it, was stopped; 0 without quota.

    Args:
        node: the node's name.
        proc: where /proc is.
    """

    def __init__(self, node: str, proc: str = "/proc") -> None:
        super().__init__()
        self._node = node
        self._growth = CounterGrowth()
        self._quota_cores = quota_cores(proc)
        groups = groups_of("cpu", proc)
        job = job_group([group for group in groups if group.version == 2])
        self._folder = job.folder if job is not None and _tells_pressure(job.folder) else ""
        places = {
            kind: f"{self._folder}/{kind}.pressure" if self._folder else f"{proc}/pressure/{kind}" for kind in _KINDS
        }
        self._files = {kind: KernelFile(path) for kind, path in places.items() if _readable(path)}
        stats = [KernelFile(f"{group.folder}/cpu.stat") for group in groups]
        self._stats = [file for file in stats if b"nr_throttled" in (file.read(4096) or b"")]
        source = "cgroup pressure" if self._folder else f"proc/pressure: {WHOLE_MACHINE}"
        self._metrics = [described(f"pressure_{kind}_ratio", source) for kind in self._files]
        if self._stats:
            self._metrics.append(described("cpu_throttled_ratio", "cgroup cpu.stat"))
        self._never = {f"pressure_{kind}_ratio": _NO_PSI for kind in _KINDS if kind not in self._files}
        if not self._stats:
            self._never["cpu_throttled_ratio"] = "no cgroup of this process shows cpu.stat"
        self.missing = dict(self._never)

    def probe(self) -> Optional[str]:
        """Return why nothing of this is told here, or None."""
        return None if self._metrics else f"{_NO_PSI}; {self._never['cpu_throttled_ratio']}"

    def metrics(self) -> list[dict[str, str]]:
        """Return those of the four metrics that this node tells."""
        return self._metrics

    def devices(self) -> list[Union[str, int]]:
        """Return the node's name."""
        return [self._node]

    def facts(self) -> dict[str, dict[str, Any]]:
        """Return the cgroup that the pressure is of, and the CPUs that a quota allows."""
        about: dict[str, Any] = {"pressure_of": self._folder or WHOLE_MACHINE}
        if self._quota_cores is not None:
            about["quota_cores"] = self._quota_cores
        return {self._node: about}

    def sample(self) -> list[float]:
        """Return the node's values."""
        self.missing = dict(self._never)
        self._growth.tick()
        values = [self._pressure(kind, file) for kind, file in self._files.items()]
        if self._stats:
            values.append(self._throttled())
        return values

    def close(self) -> None:
        """Close the files."""
        for file in [*self._files.values(), *self._stats]:
            file.close()

    def _pressure(self, kind: str, file: KernelFile) -> float:
        content = file.read(256)
        total = _total_us(content)
        grown = self._growth.of(kind, total)
        value = rate(grown, self._growth.elapsed_s) / 1e6
        if value != value:
            name = f"pressure_{kind}_ratio"
            self.missing[name] = FIRST if total is not None else file.reason or f"{file.path} holds no total"
            return NAN
        return min(1.0, value)

    def _throttled(self) -> float:
        worst, known = 0.0, False
        for file in self._stats:
            content = file.read(4096) or b""
            periods = self._growth.of(f"{file.path} periods", _value(content, b"nr_periods"))
            throttled = self._growth.of(f"{file.path} throttled", _value(content, b"nr_throttled"))
            if periods is not None and throttled is not None:
                known = True
                worst = max(worst, min(1.0, throttled / periods) if periods else 0.0)
        if not known:
            self.missing["cpu_throttled_ratio"] = self._stats[0].reason or FIRST
            return NAN
        return worst


def _tells_pressure(folder: str) -> bool:
    """Return whether a cgroup tells its own pressure; the root, which has no events, only that of the whole machine."""
    return os.path.exists(f"{folder}/cgroup.events") and _readable(f"{folder}/cpu.pressure")


def _readable(path: str) -> bool:
    """Return whether a pressure file can be read: one that is there cannot where PSI was turned off at boot."""
    file = KernelFile(path)
    content = file.read(256)
    file.close()
    return _total_us(content) is not None


def _total_us(content: Optional[bytes]) -> Optional[float]:
    line = (content or b"").split(b"\n", 1)[0]
    _, found, total = line.partition(b"total=")
    return float(total) if found and line.startswith(b"some") and total.isdigit() else None


def _value(content: bytes, key: bytes) -> Optional[float]:
    at = content.find(key + b" ")
    number = content[at + len(key) :].split(None, 1)[:1] if at >= 0 else []
    return float(number[0]) if number and number[0].isdigit() else None
