"""CPU, memory, storage and network from /proc: of the node, and of each rank's process tree."""

from __future__ import annotations

import os
import time
from typing import Any, Callable, Optional, Sequence, Union

from cordee.machine.files import KernelFile
from cordee.machine.memory import MemorySource
from cordee.telemetry.node.samplers._base import FIRST, NAN, Sampler, metric, rate
from cordee.telemetry.node.samplers.rank_part import RankPart
from cordee.telemetry.node.samplers.tree import ProcessTrees, TreeLook

_SECTOR_BYTES = 512
_VIRTUAL_DISKS = (b"loop", b"ram", b"zram", b"dm-", b"md", b"sr", b"fd")
_VIRTUAL_LINKS = (b"ifb", b"dummy", b"docker", b"br-", b"virbr", b"tun", b"tap", b"sit", b"ip6tnl")

_NODE_METRICS = [
    metric("cpu_busy_ratio", "ratio", "proc/stat"),
    metric("memory_used_bytes", "bytes", "proc/meminfo, cgroup"),
    metric("memory_total_bytes", "bytes", "proc/meminfo, cgroup"),
    metric("load_1m", "processes", "proc/loadavg"),
    metric("disk_read_bytes_per_second", "bytes/s", "proc/diskstats"),
    metric("disk_write_bytes_per_second", "bytes/s", "proc/diskstats"),
    metric("network_receive_bytes_per_second", "bytes/s", "proc/net/dev"),
    metric("network_transmit_bytes_per_second", "bytes/s", "proc/net/dev"),
]
_RANK_METRICS = [
    metric("cpu_cores_ratio", "CPU seconds per second", "proc/pid/stat"),
    metric("memory_rss_bytes", "bytes", "proc/pid/stat"),
    metric("io_read_bytes_per_second", "bytes/s", "proc/pid/io"),
    metric("io_write_bytes_per_second", "bytes/s", "proc/pid/io"),
    metric("processes", "processes", "proc"),
]
_RANK_RATES = ("cpu_cores_ratio", "io_read_bytes_per_second", "io_write_bytes_per_second")
_UNSEEN = "the kernel does not show the traffic of all processes of this rank"

Counters = dict[bytes, tuple[int, int]]


class NodeSampler(Sampler):
    """The node as a whole.

    CPU time stolen by a hypervisor is neither busy nor idle. Memory is what this process may use: a cgroup's limit
    where it is lower than the machine's memory. Disks are whole devices that have hardware behind them, and so are
    network interfaces unless none has (inside a container).

    Args:
        node: the node's name.
        proc, sys: where /proc and /sys are.
    """

    def __init__(self, node: str, proc: str = "/proc", sys: str = "/sys") -> None:
        super().__init__()
        self._node = node
        self._proc = proc
        self._sys = sys
        self._stat = KernelFile(f"{proc}/stat")
        self._load = KernelFile(f"{proc}/loadavg")
        self._disks = KernelFile(f"{proc}/diskstats")
        self._network = KernelFile(f"{proc}/net/dev")
        self._memory = MemorySource(proc)
        self._has_hardware: dict[tuple[str, bytes], bool] = {}
        self._before: Optional[float] = None
        self._cpu: Optional[tuple[int, int]] = None
        self._disk_counters: Optional[Counters] = None
        self._network_counters: Optional[Counters] = None

    def probe(self) -> Optional[str]:
        """Return why there is no /proc, or None."""
        return None if os.path.exists(f"{self._proc}/stat") else f"{self._proc} is not mounted"

    def metrics(self) -> list[dict[str, str]]:
        """Return the eight metrics of a node."""
        return _NODE_METRICS

    def devices(self) -> list[Union[str, int]]:
        """Return the node's name."""
        return [self._node]

    def sample(self) -> list[float]:
        """Return the node's values."""
        self.missing = {}
        now = time.monotonic()
        elapsed = 0.0 if self._before is None else now - self._before
        self._before = now
        values = [
            self._cpu_busy(),
            *self._memory_bytes(),
            self._load_1m(),
            *self._disk_rates(elapsed),
            *self._network_rates(elapsed),
        ]
        for index, described in enumerate(_NODE_METRICS):
            if values[index] != values[index]:
                self.missing.setdefault(described["name"], FIRST)
        return values

    def _miss(self, prefix: str, reason: Optional[str]) -> None:
        for described in _NODE_METRICS:
            if described["name"].startswith(prefix):
                self.missing[described["name"]] = reason or "unreadable"

    def _cpu_busy(self) -> float:
        content = self._stat.read(512)
        fields = [] if content is None else content.split(b"\n", 1)[0].split()[1:9]
        if len(fields) < 8:
            self._miss("cpu_", self._stat.reason or f"{self._stat.path} has no line for all CPUs")
            return NAN
        user, nice, system, idle, waiting, interrupts, soft, stolen = map(int, fields)
        busy = user + nice + system + interrupts + soft
        before, self._cpu = self._cpu, (busy, busy + idle + waiting + stolen)
        if before is None or self._cpu[1] <= before[1]:
            return NAN
        return min(1.0, max(0.0, (self._cpu[0] - before[0]) / (self._cpu[1] - before[1])))

    def _memory_bytes(self) -> tuple[float, float]:
        reading = self._memory.read()
        if reading is None:
            self._miss("memory_", self._memory.reason)
            return NAN, NAN
        return float(reading.total_bytes - reading.available_bytes), float(reading.total_bytes)

    def _load_1m(self) -> float:
        content = self._load.read(128)
        try:
            return float((content or b"").split()[0])
        except (IndexError, ValueError):
            self._miss("load_", self._load.reason or f"{self._load.path} holds no number")
            return NAN

    def _disk_rates(self, elapsed_s: float) -> tuple[float, float]:
        content = self._disks.read()
        if content is None:
            self._miss("disk_", self._disks.reason)
            return NAN, NAN
        found: Counters = {}
        for line in content.splitlines():
            fields = line.split(None, 10)
            if len(fields) > 9 and not fields[2].startswith(_VIRTUAL_DISKS) and self._hardware("block", fields[2]):
                found[fields[2]] = (int(fields[5]) * _SECTOR_BYTES, int(fields[9]) * _SECTOR_BYTES)
        if not found:
            self._miss("disk_", "this node shows no disk")
        before, self._disk_counters = self._disk_counters, found
        return _rates(before, found, elapsed_s)

    def _network_rates(self, elapsed_s: float) -> tuple[float, float]:
        content = self._network.read()
        if content is None:
            self._miss("network_", self._network.reason)
            return NAN, NAN
        links: Counters = {}
        for line in content.splitlines()[2:]:
            name, _, rest = line.partition(b":")
            fields = rest.split()
            if len(fields) > 8 and name.strip() != b"lo":
                links[name.strip()] = (int(fields[0]), int(fields[8]))
        found = {name: pair for name, pair in links.items() if self._hardware("class/net", name)}
        found = found or {name: pair for name, pair in links.items() if not name.startswith(_VIRTUAL_LINKS)}
        if not found:
            self._miss("network_", "this node shows no network interface but lo")
        before, self._network_counters = self._network_counters, found
        return _rates(before, found, elapsed_s)

    def _hardware(self, kind: str, name: bytes) -> bool:
        known = self._has_hardware.get((kind, name))
        if known is None:
            known = os.path.exists(f"{self._sys}/{kind}/{name.decode(errors='replace')}/device")
            self._has_hardware[kind, name] = known
        return known


class RankSampler(Sampler):
    """Each rank with all processes below its main process.

    CPU and storage traffic of children that came and went are counted once, when their parent has waited for them.
    Resident memory that processes share (forked data loaders) is counted in each of them. Storage traffic is what
    reached the storage layer, not what the page cache served. A rank whose main process is gone is NaN.

    Args:
        processes: returns the pid of the main process of each global rank that runs on this node.
        proc: where /proc is.
        parts: what else is measured of each rank.
        list_every_s: how often new processes are looked for; 0: at every sample.
    """

    def __init__(
        self,
        processes: Callable[[], dict[int, int]],
        proc: str = "/proc",
        parts: Sequence[RankPart] = (),
        list_every_s: float = 0.0,
    ) -> None:
        super().__init__()
        self._parts = parts
        self._metrics = _RANK_METRICS + [described for part in parts for described in part.metrics()]
        self._roots: dict[int, int] = {}
        self._processes = processes
        self._proc = proc
        self._trees = ProcessTrees(proc, list_every_s)
        self._ranks: list[int] = []
        self._before: Optional[float] = None
        self._tick_s = 1.0 / os.sysconf("SC_CLK_TCK")
        self._page_bytes = os.sysconf("SC_PAGE_SIZE")

    def probe(self) -> Optional[str]:
        """Return why there is no /proc, or None."""
        return None if os.path.exists(f"{self._proc}/stat") else f"{self._proc} is not mounted"

    def metrics(self) -> list[dict[str, str]]:
        """Return the five metrics of a rank and those of the parts."""
        return self._metrics

    def devices(self) -> list[Union[str, int]]:
        """Return the global ranks of the last sample, ascending."""
        return list(self._ranks)

    def facts(self) -> dict[str, dict[str, Any]]:
        """Return of each rank its main pid, and what the parts know."""
        found: dict[str, dict[str, Any]] = {}
        for rank in self._ranks:
            found[str(rank)] = {"pid": self._roots[rank]}
            for part in self._parts:
                found[str(rank)].update(part.facts(rank))
        return found

    def close(self) -> None:
        """Close the files of processes, and what the parts hold open."""
        self._trees.close()
        for part in self._parts:
            part.close()

    def sample(self) -> list[float]:
        """Return the values of each rank."""
        self.missing = {}
        self._roots = roots = self._processes()
        self._ranks = sorted(roots)
        try:
            looks = self._trees.look(roots)
        except OSError as error:
            self.missing = {described["name"]: f"{self._proc}: {error.strerror}" for described in self._metrics}
            return [NAN] * (len(self._metrics) * len(roots))
        now = time.monotonic()
        elapsed = 0.0 if self._before is None else now - self._before
        self._before = now
        of_parts = [part.sample(roots, looks, elapsed) for part in self._parts]
        for part in self._parts:
            self.missing.update(part.missing)
        values: list[float] = []
        for rank in self._ranks:
            look = looks[rank]
            if look is None:
                self.missing.update({described["name"]: f"rank {rank} has ended" for described in self._metrics})
                values += [NAN] * len(self._metrics)
                continue
            values += self._of_tree(look, elapsed)
            for of_part in of_parts:
                values += of_part[rank]
        return values

    def _of_tree(self, look: TreeLook, elapsed_s: float) -> list[float]:
        if look.ticks is None:
            self.missing.update(dict.fromkeys(_RANK_RATES, FIRST))
        elif look.read_bytes is None:
            self.missing.update(dict.fromkeys(_RANK_RATES[1:], _UNSEEN))
        return [
            rate(look.ticks, elapsed_s) * self._tick_s,
            float(look.rss_pages * self._page_bytes),
            rate(look.read_bytes, elapsed_s),
            rate(look.write_bytes, elapsed_s),
            float(look.processes),
        ]


def _rates(before: Optional[Counters], now: Counters, elapsed_s: float) -> tuple[float, float]:
    """Return both rates, summed over the devices that were there at both times and were not reset."""
    if before is None:
        return NAN, NAN
    grown = [
        (new[0] - before[name][0], new[1] - before[name][1])
        for name, new in now.items()
        if name in before and new[0] >= before[name][0] and new[1] >= before[name][1]
    ]
    if not grown:
        return NAN, NAN
    return rate(sum(pair[0] for pair in grown), elapsed_s), rate(sum(pair[1] for pair in grown), elapsed_s)
