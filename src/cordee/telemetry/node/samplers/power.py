"""Power of the processors and of the whole node, from whatever meter the node has."""

from __future__ import annotations

import glob
import os
from typing import NamedTuple, Optional, Union

from cordee.machine import sysfs
from cordee.machine.files import KernelFile
from cordee.telemetry.node.catalogue import described
from cordee.telemetry.node.samplers._base import FIRST, NAN, CounterGrowth, Sampler, rate


class Meter(NamedTuple):
    """One counter of energy (`joules_each` of its unit, `wraps_at` in that unit) or, without, of power in microwatts."""

    file: KernelFile
    joules_each: Optional[float] = None
    wraps_at: Optional[float] = None


class PowerSampler(Sampler):
    """Watts of the CPU packages with their memory, and of the node.

    CPUs: RAPL (packages and the memory beside them), else HPE's pm_counters, else the sockets that Grace's power meter
    names. Node: pm_counters, else the modules that Grace's meter names, else the board's ACPI power meter. Counters of
    energy give means, meters the power of the moment.

    Args:
        node: the node's name.
        sys: where /sys is.
    """

    def __init__(self, node: str, sys: str = "/sys") -> None:
        super().__init__()
        self._node = node
        self._growth = CounterGrowth()
        self._never: dict[str, str] = {}
        self._meters: list[tuple[str, list[Meter]]] = []
        self._metrics = []
        for name, sources, absent in (
            ("cpu_power_watts", (_rapl, _cray_cpu, _grace_sockets), "no RAPL or other meter of CPUs is shown here"),
            ("node_power_watts", (_cray_node, _grace_modules, _board), "no power meter of the node is shown here"),
        ):
            for source in sources:
                label, meters = source(sys)
                if not meters:
                    continue
                closed = [meter.file.reason for meter in meters if meter.file.read(64) is None]
                if closed:
                    absent = f"{closed[0]} (the administrator can open it)"
                    continue
                self._meters.append((name, meters))
                self._metrics.append(described(name, label))
                break
            else:
                self._never[name] = absent
        self.missing = dict(self._never)

    def probe(self) -> Optional[str]:
        """Return why no power is told here, or None."""
        return None if self._meters else "; ".join(self._never.values())

    def metrics(self) -> list[dict[str, str]]:
        """Return those of the two metrics that this node tells."""
        return self._metrics

    def devices(self) -> list[Union[str, int]]:
        """Return the node's name."""
        return [self._node]

    def sample(self) -> list[float]:
        """Return the node's values; a sum of which a part is missing is missing."""
        self.missing = dict(self._never)
        self._growth.tick()
        values = []
        for name, meters in self._meters:
            watts = sum(self._watts(name, meter) for meter in meters)
            values.append(watts)
        return values

    def close(self) -> None:
        """Close the files."""
        for _, meters in self._meters:
            for meter in meters:
                meter.file.close()

    def _watts(self, name: str, meter: Meter) -> float:
        content = (meter.file.read(64) or b"").split(None, 1)[:1]
        number = float(content[0]) if content and content[0].isdigit() else None
        if number is None:
            self.missing[name] = meter.file.reason or f"{meter.file.path} holds no number"
            return NAN
        if meter.joules_each is None:
            return number / 1e6
        grown = self._growth.of(meter.file.path, number, meter.wraps_at)
        if grown is None:
            self.missing[name] = FIRST
        return rate(grown, self._growth.elapsed_s) * meter.joules_each


def _rapl(sys: str) -> tuple[str, list[Meter]]:
    """Return the packages' counters and those of memory; the zones inside of packages are parts of them.

    AMD's processors stand there under Intel's name too; `intel-rapl-mmio` is a second way to the same counters.
    """
    found = []
    for zone in sorted(glob.glob(f"{sys}/class/powercap/intel-rapl:*")):
        name = sysfs.text(os.path.join(zone, "name")) or ""
        if name.startswith("package") or name == "dram":
            most = sysfs.number(os.path.join(zone, "max_energy_range_uj"))
            found.append(Meter(KernelFile(os.path.join(zone, "energy_uj")), 1e-6, most))
    return "RAPL", found


def _cray(sys: str, *names: str) -> list[Meter]:
    paths = [f"{sys}/cray/pm_counters/{name}" for name in names]
    return [Meter(KernelFile(path), 1.0) for path in paths if os.path.exists(path)]


def _cray_cpu(sys: str) -> tuple[str, list[Meter]]:
    return "pm_counters", _cray(sys, "cpu_energy", "memory_energy")


def _cray_node(sys: str) -> tuple[str, list[Meter]]:
    return "pm_counters", _cray(sys, "energy")


def _hwmon(sys: str, beginning: str) -> list[Meter]:
    """Return the ACPI power meters of which the maker says what they measure, by how that begins; empty: unnamed ones."""
    found = []
    for folder in sorted(glob.glob(f"{sys}/class/hwmon/hwmon*")):
        if sysfs.text(os.path.join(folder, "name")) != "power_meter":
            continue
        place = folder if os.path.exists(os.path.join(folder, "power1_average")) else os.path.join(folder, "device")
        label = sysfs.text(os.path.join(place, "power1_oem_info")) or ""
        named = any(label.startswith(word) for word in ("Module Power", "Grace Power", "CPU Power", "SysIO Power"))
        if label.startswith(beginning) if beginning else not named:
            found.append(Meter(KernelFile(os.path.join(place, "power1_average"))))
    return found


def _grace_sockets(sys: str) -> tuple[str, list[Meter]]:
    return "ACPI power meter, Grace sockets", _hwmon(sys, "Grace Power")


def _grace_modules(sys: str) -> tuple[str, list[Meter]]:
    return "ACPI power meter, Grace modules", _hwmon(sys, "Module Power")


def _board(sys: str) -> tuple[str, list[Meter]]:
    return "ACPI power meter", _hwmon(sys, "")[:1]
