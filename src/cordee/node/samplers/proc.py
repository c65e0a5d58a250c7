"""CPU, memory, disk and network of a node, and what the process trees of its ranks use, from /proc."""

from __future__ import annotations

import os
import re
import time
from typing import Callable, Optional, Union

from cordee.node.samplers._base import Sampler

_NAN = float("nan")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_SECTOR_BYTES = 512
_NO_WHOLE_DISK = re.compile(r"^(loop|ram|zram|dm-|md|sr|fd)|^(sd|vd|xvd|hd)[a-z]+\d+$|^(nvme\d+n\d+|mmcblk\d+)p\d+$")
_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
_CGROUP_USED = ("/sys/fs/cgroup/memory.current", "/sys/fs/cgroup/memory/memory.usage_in_bytes")


def memory_limits() -> tuple[int, int]:
    """Return (total, available) bytes of this node, or of its cgroup where that is less."""
    fields = {}
    for line in _read("/proc/meminfo").split(b"\n"):
        name, _, rest = line.partition(b":")
        if rest:
            fields[name] = int(rest.split()[0]) * 1024
    total = fields.get(b"MemTotal", 0)
    available = fields.get(b"MemAvailable", fields.get(b"MemFree", 0))
    for limit_path, used_path in zip(_CGROUP_LIMITS, _CGROUP_USED):
        limit = _read(limit_path).strip()
        if limit.isdigit() and int(limit) < total:
            total = int(limit)
            used = _read(used_path).strip()
            available = min(available, max(0, total - (int(used) if used.isdigit() else 0)))
    return total, available


class NodeSampler(Sampler):
    """One device, the node: busy CPU, memory, load, disk and network rates over the true time since the last tick.

    Args:
        node: the node's name.
    """

    def __init__(self, node: str) -> None:
        super().__init__()
        self._node = node
        self._last: Optional[tuple[float, dict[str, float]]] = None
        self.sample()

    def metrics(self) -> list[dict[str, str]]:
        """Return the metrics of a node."""
        rows = [("cpu_busy_ratio", "ratio"), ("memory_used_bytes", "bytes"), ("memory_total_bytes", "bytes"), ("load_1m", "processes")]
        rows += [(f"{name}_bytes_per_second", "bytes per second") for name in _RATES]
        return [{"name": name, "unit": unit, "source": "proc"} for name, unit in rows]

    def devices(self) -> list[Union[str, int]]:
        """Return the node's name."""
        return [self._node]

    def sample(self) -> list[float]:
        """Return the node's values; rates are NaN at the first call."""
        now = time.monotonic()
        counters = self._counters()
        total, available = memory_limits()
        load = _read("/proc/loadavg").split()
        rates = [_NAN] * (1 + len(_RATES))
        if self._last is not None:
            before, old = self._last
            seconds = now - before
            ticks = counters["total"] - old["total"]
            rates[0] = (counters["busy"] - old["busy"]) / ticks if ticks > 0 else _NAN
            for index, name in enumerate(_RATES, start=1):
                change = counters[name] - old[name]
                rates[index] = change / seconds if seconds > 0 and change >= 0 else _NAN
        self._last = (now, counters)
        return [rates[0], float(total - available), float(total), float(load[0]) if load else _NAN, *rates[1:]]

    @staticmethod
    def _counters() -> dict[str, float]:
        numbers = [int(part) for part in _read("/proc/stat").split(b"\n", 1)[0].split()[1:9]] or [0] * 8
        idle = numbers[3] + numbers[4]
        counters = {"total": float(sum(numbers)), "busy": float(sum(numbers) - idle)}
        counters.update(dict.fromkeys(_RATES, 0.0))
        for line in _read("/proc/diskstats").decode(errors="replace").split("\n"):
            parts = line.split()
            if len(parts) >= 10 and not _NO_WHOLE_DISK.match(parts[2]):
                counters["disk_read"] += int(parts[5]) * _SECTOR_BYTES
                counters["disk_write"] += int(parts[9]) * _SECTOR_BYTES
        for line in _read("/proc/net/dev").decode(errors="replace").split("\n")[2:]:
            name, _, rest = line.partition(":")
            parts = rest.split()
            if len(parts) >= 9 and name.strip() != "lo":
                counters["network_receive"] += int(parts[0])
                counters["network_transmit"] += int(parts[8])
        return counters


_RATES = ("disk_read", "disk_write", "network_receive", "network_transmit")


class RankSampler(Sampler):
    """One device per rank: what its whole process tree uses.

    The CPU of children that have ended counts through their parent once it has waited for them; a tree whose total
    falls, because a process was reaped elsewhere, gives NaN for that tick and never a negative rate.

    Args:
        pids: returns the main pid of each running global rank.
    """

    def __init__(self, pids: Callable[[], dict[int, int]]) -> None:
        super().__init__()
        self._pids = pids
        self._devices: list[Union[str, int]] = []
        self._last: dict[int, tuple[int, float, list[float]]] = {}

    def metrics(self) -> list[dict[str, str]]:
        """Return the metrics of a rank."""
        rows = [("cpu_cores_ratio", "cores"), ("memory_rss_bytes", "bytes"), ("io_read_bytes_per_second", "bytes per second")]
        rows += [("io_write_bytes_per_second", "bytes per second"), ("processes", "processes")]
        return [{"name": name, "unit": unit, "source": "proc"} for name, unit in rows]

    def devices(self) -> list[Union[str, int]]:
        """Return the global ranks of the last sample."""
        return self._devices

    def sample(self) -> list[float]:
        """Return the values of each running rank, in the order of `devices`."""
        roots = self._pids()
        self._devices = sorted(roots)
        children = _children() if roots else {}
        now = time.monotonic()
        values: list[float] = []
        for rank in sorted(roots):
            values += self._rank(rank, roots[rank], children, now)
        self._last = {rank: last for rank, last in self._last.items() if rank in roots}
        return values

    def _rank(self, rank: int, root: int, children: dict[int, list[int]], now: float) -> list[float]:
        tree = [root]
        for pid in tree:
            tree.extend(children.get(pid, ()))
        totals, memory, count = [0.0, 0.0, 0.0], 0.0, 0
        for pid in tree:
            used = _usage(pid)
            if used is not None:
                totals = [total + part for total, part in zip(totals, used[:3])]
                memory += used[3]
                count += 1
        if count == 0:
            self._last.pop(rank, None)
            return [_NAN] * 5
        rates = [_NAN, _NAN, _NAN]
        last = self._last.get(rank)
        if last is not None and last[0] == root and now > last[1]:
            changes = [new - old for new, old in zip(totals, last[2])]
            rates = [change / (now - last[1]) if change >= 0 else _NAN for change in changes]
        self._last[rank] = (root, now, totals)
        return [rates[0], memory, rates[1], rates[2], float(count)]


def _usage(pid: int) -> Optional[tuple[float, float, float, float]]:
    """Return (CPU seconds with waited-for children, bytes read, bytes written, resident bytes) of one process."""
    stat = _read(f"/proc/{pid}/stat")
    if not stat:
        return None
    fields = stat[stat.rfind(b")") + 2 :].split()
    cpu = sum(int(part) for part in fields[11:15]) / _TICKS_PER_S
    read, written = 0.0, 0.0
    for line in _read(f"/proc/{pid}/io").split(b"\n"):
        if line.startswith(b"read_bytes:"):
            read = float(line.split()[1])
        elif line.startswith(b"write_bytes:"):
            written = float(line.split()[1])
    return cpu, read, written, float(int(fields[21]) * _PAGE_BYTES)


def _children() -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            stat = _read(f"/proc/{name}/stat")
            if stat:
                parent = int(stat[stat.rfind(b")") + 2 :].split(None, 2)[1])
                found.setdefault(parent, []).append(int(name))
    return found


def _read(path: str) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        parts = []
        while True:
            part = os.read(descriptor, 65536)
            if not part:
                return b"".join(parts)
            parts.append(part)
    except OSError:
        return b""
    finally:
        os.close(descriptor)
