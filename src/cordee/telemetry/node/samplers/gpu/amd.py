"""AMD's GPUs through amdsmi: coarse, for there are no counters of pipes. Written from its public module, not run on a GPU."""

from __future__ import annotations

import time
from typing import Any, Callable, Optional, Sequence, Union

from cordee.machine.gpus.amd import AmdSource
from cordee.machine.gpus.model import Gpu, GpusUnreadable
from cordee.telemetry.node.samplers._base import FIRST, NAN
from cordee.telemetry.node.samplers.gpu._base import GpuMetricSource, Roots, SourceUnavailable, chosen
from cordee.telemetry.node.samplers.gpu._users import Sharing

_COARSE = "amdsmi has no counters of it"
_SLOW_S = 10.0
# Time with clocks held down, in ticks of `accumulation_counter` (firmware metrics of MI300 and newer).
_THROTTLE = {
    "gpu_throttle_power_ratio": ("ppt_residency_acc",),
    "gpu_throttle_thermal_ratio": (
        "prochot_residency_acc",
        "socket_thm_residency_acc",
        "vr_thm_residency_acc",
        "hbm_thm_residency_acc",
    ),
}
# KB over all links since the driver was loaded.
_XGMI = {
    "gpu_nvlink_receive_bytes_per_second": "xgmi_read_data_acc",
    "gpu_nvlink_transmit_bytes_per_second": "xgmi_write_data_acc",
}


class _NotGiven(Exception):
    """A value that the library does not give, and why."""


class AmdSmiSource(GpuMetricSource):
    """What amdsmi tells of whole GPUs; partitions of one (CPX and the like) count as the library shows them."""

    name = "amdsmi"
    coarse = True

    def __init__(
        self, wanted: Optional[Sequence[str]] = None, interval_s: float = 1.0, own: Optional[Roots] = None
    ) -> None:
        super().__init__(wanted, interval_s, own)
        self._source: Optional[AmdSource] = None
        self._devices: dict[str, _Device] = {}
        self._sharing = Sharing(own)

    def probe(self) -> Optional[str]:
        """Open amdsmi and read each GPU once; return why that cannot be, or None."""
        try:
            self._source = AmdSource()
            gpus = {gpu.uuid: gpu for gpu in self._source.read(("memory",)) if gpu.uuid}
            found, absent = chosen(self.wanted, list(gpus))
        except (GpusUnreadable, SourceUnavailable) as error:
            return str(error)
        if not found:
            return f"amdsmi shows none of the job's GPUs ({', '.join(absent) or 'it tells no UUID'})"
        self.remarks = [f"{uuid} was given to the job and is not measured: amdsmi does not show it" for uuid in absent]
        self._devices = {
            uuid: _Device(self._source.smi, self._source.handles[gpus[uuid].index], gpus[uuid]) for uuid in found
        }
        reasons: dict[str, str] = {}
        given = {metric for device in self._devices.values() for metric in device.read(time.monotonic(), reasons)}
        given |= {metric for metric, reason in reasons.items() if reason == FIRST}
        self.never = {metric: reason for metric, reason in reasons.items() if metric not in given}
        self.give(list(given), _COARSE)
        return None if given else "amdsmi gives no value of any GPU"

    def devices(self) -> list[Union[str, int]]:
        """Return the UUIDs that amdsmi gives."""
        return list(self._devices)

    def facts(self) -> dict[str, dict[str, Any]]:
        """Return what the GPUs are and whether others use them too."""
        return {
            uuid: {**device.describe(), **self._sharing.facts(device.pids)} for uuid, device in self._devices.items()
        }

    def sample(self) -> list[float]:
        """Return the values of each GPU."""
        self.missing = dict(self.never)
        values: list[float] = []
        for uuid, device in self._devices.items():
            reasons: dict[str, str] = {}
            found = device.read(time.monotonic(), reasons)
            for metric in self.given:
                value = found.get(metric, NAN)
                if value != value:
                    reason = reasons.get(metric, "amdsmi: not told")
                    self.missing.setdefault(metric, f"{uuid}: {reason}" if len(self._devices) > 1 else reason)
                values.append(value)
        return values

    def close(self) -> None:
        """Give the library back."""
        source, self._source = self._source, None
        if source is not None and hasattr(source.smi, "amdsmi_shut_down"):
            source.smi.amdsmi_shut_down()


class _Device:
    def __init__(self, smi: Any, handle: Any, gpu: Gpu) -> None:
        self._smi, self._handle, self._gpu = smi, handle, gpu
        self._counters: dict[str, tuple[float, float]] = {}
        self._kept: dict[str, tuple[float, float]] = {}
        self._metrics: dict[str, Any] = {}
        self._now = 0.0
        self.pids: list[int] = []
        self._readers: dict[str, Callable[[], float]] = {
            "gpu_utilization_ratio": lambda: self._percent("average_gfx_activity"),
            "gpu_memory_busy_ratio": lambda: self._percent("average_umc_activity"),
            "gpu_memory_used_bytes": lambda: float(
                self._ask("amdsmi_get_gpu_memory_usage", self._smi.AmdSmiMemoryType.VRAM)
            ),
            "gpu_memory_total_bytes": self._memory_total,
            "gpu_power_watts": self._power,
            "gpu_clock_sm_hertz": lambda: self._clock("clk"),
            "gpu_clock_sm_max_hertz": lambda: self._clock("max_clk"),
            "gpu_temperature_celsius": self._temperature,
            "gpu_processes": self._processes,
            **{name: (lambda key=key: self._xgmi(key)) for name, key in _XGMI.items()},  # type: ignore[misc]
            **{name: (lambda name=name: self._throttle(name)) for name in _THROTTLE},  # type: ignore[misc]
        }

    def read(self, now_s: float, reasons: dict[str, str]) -> dict[str, float]:
        """Return the values there are at monotonic `now_s`, and a reason for each other."""
        self._now = now_s
        found: dict[str, float] = {}
        try:
            self._metrics = self._ask("amdsmi_get_gpu_metrics_info")
        except _NotGiven as error:
            self._metrics = {"why": str(error)}
        for name, reader in self._readers.items():
            try:
                value = reader()
            except _NotGiven as error:
                reasons[name] = str(error)
                continue
            if value != value:
                reasons[name] = FIRST
            else:
                found[name] = value
        return found

    def describe(self) -> dict[str, Any]:
        """Return the facts that are known."""
        gpu = self._gpu
        facts: dict[str, Any] = {
            "uuid": gpu.uuid,
            "model": gpu.name or "",
            "index": gpu.index,
            "share": 1.0,
            "lost": "",
        }
        if gpu.pci_bus_id:
            facts["pci_bus_id"] = gpu.pci_bus_id
        if gpu.memory_total_bytes:
            facts["memory_bytes"] = gpu.memory_total_bytes
        return facts

    def _ask(self, function: str, *arguments: Any) -> Any:
        try:
            return getattr(self._smi, function)(self._handle, *arguments)
        except AttributeError:
            raise _NotGiven(f"this amdsmi has no {function}") from None
        except self._smi.AmdSmiException as error:
            raise _NotGiven(f"amdsmi: {' '.join(str(error).split())}") from None

    def _metric(self, name: str) -> float:
        """Return a number of the firmware's metrics; lists of links are added up."""
        value = self._metrics.get(name, "N/A")
        if isinstance(value, (list, tuple)):
            known = [part for part in value if _is_number(part)]
            value = sum(known) if known else "N/A"
        if not _is_number(value):
            raise _NotGiven(self._metrics.get("why") or f"amdsmi: {name} is not told")
        return float(value)

    def _percent(self, name: str) -> float:
        return min(1.0, self._metric(name) / 100)

    def _grown(self, name: str, counter: float, over: float) -> float:
        """Return how much a counter grew for each unit that another (time, ticks) did; NaN where that is not known."""
        before, self._counters[name] = self._counters.get(name), (counter, over)
        if before is None or counter < before[0] or over <= before[1]:
            return NAN
        return (counter - before[0]) / (over - before[1])

    def _xgmi(self, key: str) -> float:
        return self._grown(key, self._metric(key) * 1024, self._now)

    def _throttle(self, name: str) -> float:
        ticks = self._metric("accumulation_counter")
        shares = [self._grown(key, self._metric(key), ticks) for key in _THROTTLE[name]]
        known = [share for share in shares if share == share]
        return min(1.0, max(known)) if known else NAN

    def _power(self) -> float:
        """Return the mean from the energy counter (microjoules by its resolution), else what it is now."""
        try:
            energy = self._ask("amdsmi_get_energy_count")
            ticks = energy.get("energy_accumulator", energy.get("power"))  # its name in older releases
            if _is_number(ticks) and _is_number(energy.get("counter_resolution")):
                return self._grown("energy", ticks * energy["counter_resolution"] / 1e6, self._now)
        except _NotGiven:
            pass
        told = self._ask("amdsmi_get_power_info")
        for name in ("socket_power", "current_socket_power", "average_socket_power"):
            if _is_number(told.get(name)) and told[name] > 0:
                return float(told[name])
        raise _NotGiven("amdsmi: power is not told")

    def _clock(self, which: str) -> float:
        value = self._ask("amdsmi_get_clock_info", self._smi.AmdSmiClkType.GFX).get(which)
        if not _is_number(value):
            raise _NotGiven("amdsmi: the clock is not told")
        return float(value) * 1e6

    def _temperature(self) -> float:
        kinds, metrics = self._smi.AmdSmiTemperatureType, self._smi.AmdSmiTemperatureMetric
        value = self._ask("amdsmi_get_temp_metric", kinds.HOTSPOT, metrics.CURRENT)
        if not _is_number(value):
            raise _NotGiven("amdsmi: the temperature is not told")
        return float(value)

    def _memory_total(self) -> float:
        if self._gpu.memory_total_bytes is None:
            raise _NotGiven("amdsmi: its memory is not told")
        return float(self._gpu.memory_total_bytes)

    def _processes(self) -> float:
        kept = self._kept.get("processes")
        if kept is None or self._now - kept[0] >= _SLOW_S:
            self.pids = [entry["pid"] for entry in self._ask("amdsmi_get_gpu_process_list")]
            kept = self._kept["processes"] = (self._now, float(len(self.pids)))
        return kept[1]


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
