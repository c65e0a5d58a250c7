"""What NVML tells of one device besides GPM: memory, power, clocks, temperature, throttling, processes."""

from __future__ import annotations

import ctypes
import time
from typing import Any, Callable, Optional

from cordee.node.samplers._base import NAN
from cordee.node.samplers.gpu._nvml import (
    FOR_GOOD,
    GONE,
    SUCCESS,
    FieldValue,
    Memory,
    MemoryV2,
    Nvml,
    Process,
    Utilization,
    Violation,
)
from cordee.node.samplers.gpu._nvml_devices import Device

_MEMORY_V2 = ctypes.sizeof(MemoryV2) | 2 << 24
_SM_CLOCK, _GPU_SENSOR, _POWER_POLICY, _THERMAL_POLICY = 1, 0, 0, 1
# Bits of the reasons for low clocks (nvmlClocksEventReason...): by software and by hardware.
_POWER_BITS, _THERMAL_BITS = 0x04 | 0x80, 0x20 | 0x40
_MOST_PROCESSES = 256
# Fields of counters: bytes over PCIe; KiB over all NVLinks (the scope of all of them has all bits set).
_PCIE_SENT, _PCIE_RECEIVED, _NVLINK_SENT, _NVLINK_RECEIVED = 197, 198, 138, 139
_ALL_LINKS = 0xFFFFFFFF
_OF_WHOLE_GPU = "NVML tells it of the whole GPU only, not of an instance"
FIRST = "a rate needs two samples"

# How often what changes slowly or costs much is read: the last value stands in between.
SLOW_S, PROCESSES_S = 1.0, 10.0


class Refused(Exception):
    """A value that cannot be had now, with NVML's error code and the reason."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class Values:
    """Reads one device; what the driver refuses for good is not asked again.

    Args:
        coarse: read the coarse counters of activity and traffic too, which GPM makes needless.

    Attributes:
        readers: what is read, by the name of the metric.
        absent: why a metric will not be had from this device, by its name.
        gone: why the device as a whole does not answer, after `read`.
        pids: the processes that hold memory of the device, when they were last read.
    """

    def __init__(self, nvml: Nvml, device: Device, coarse: bool) -> None:
        self._nvml, self._device = nvml, device
        self._whole = device.instance is None
        self._buffers: dict[str, Any] = {}
        self._counters: dict[str, tuple[float, float]] = {}
        self._kept: dict[str, tuple[float, float]] = {}
        self._now = 0.0
        self.pids: list[int] = []
        self.gone: Optional[str] = None
        self.absent: dict[str, str] = {}
        self.readers: dict[str, Callable[[], float]] = {
            "gpu_memory_used_bytes": self._memory_used,
            "gpu_memory_total_bytes": self._memory_total,
            "gpu_power_watts": self._power,
            "gpu_clock_sm_hertz": self._clock,
            "gpu_clock_sm_max_hertz": self._clock_max,
            "gpu_temperature_celsius": self._temperature,
            "gpu_throttle_thermal_ratio": self._throttle_thermal,
            "gpu_throttle_power_ratio": self._throttle_power,
            "gpu_processes": self._processes,
        }
        if coarse:
            self.readers.update(
                gpu_utilization_ratio=lambda: self._utilization("gpu"),
                gpu_memory_busy_ratio=lambda: self._utilization("memory"),
                gpu_pcie_transmit_bytes_per_second=lambda: self._traffic(_PCIE_SENT, 0, 1),
                gpu_pcie_receive_bytes_per_second=lambda: self._traffic(_PCIE_RECEIVED, 0, 1),
                gpu_nvlink_transmit_bytes_per_second=lambda: self._traffic(_NVLINK_SENT, _ALL_LINKS, 1024),
                gpu_nvlink_receive_bytes_per_second=lambda: self._traffic(_NVLINK_RECEIVED, _ALL_LINKS, 1024),
            )

    def read(self, now_s: float, missing: dict[str, str]) -> dict[str, float]:
        """Return the values at monotonic `now_s` by metric, NaN with a reason in `missing` where there is none."""
        self._now = now_s
        self.gone = None
        found: dict[str, float] = {}
        for name, reader in self.readers.items():
            if name in self.absent:
                missing[name], found[name] = self.absent[name], NAN
                continue
            try:
                value = found[name] = reader()
                if value != value:
                    missing[name] = FIRST
            except Refused as refusal:
                missing[name], found[name] = str(refusal), NAN
                if refusal.code in GONE:
                    self.gone = str(refusal)
                    return found
                if refusal.code in FOR_GOOD:
                    self.absent[name] = str(refusal)
        return found

    def _ask(self, function: str, *arguments: Any, handle: Optional[ctypes.c_void_p] = None) -> None:
        code = self._nvml.function(function)(handle or self._device.handle, *arguments)
        if code != SUCCESS:
            raise Refused(code, f"NVML: {self._nvml.words(code)}")

    def _number(self, function: str, *arguments: Any) -> int:
        """Return an unsigned int that belongs to the whole GPU."""
        buffer = self._buffers.get(function)
        if buffer is None:
            buffer = self._buffers[function] = ctypes.c_uint()
        self._ask(function, *arguments, ctypes.byref(buffer), handle=self._device.whole)
        return int(buffer.value)

    def _slowly(self, name: str, every_s: float, read: Callable[[], float]) -> float:
        kept = self._kept.get(name)
        if kept is None or self._now - kept[0] >= every_s * 0.95:
            kept = self._kept[name] = (self._now, read())
        return kept[1]

    def _rate(self, name: str, counter: float, at_s: float) -> float:
        before, self._counters[name] = self._counters.get(name), (counter, at_s)
        if before is None or counter < before[0] or at_s <= before[1]:
            return NAN
        return (counter - before[0]) / (at_s - before[1])

    def _memory_used(self) -> float:
        return self._slowly("memory", SLOW_S, self._read_memory)

    def _read_memory(self) -> float:
        second = self._buffers.setdefault("memory 2", MemoryV2(version=_MEMORY_V2))
        memory: Any = second
        if "memory 2" not in self.absent:
            try:
                self._ask("nvmlDeviceGetMemoryInfo_v2", ctypes.byref(second))
            except Refused as refusal:
                if refusal.code not in FOR_GOOD:
                    raise
                self.absent["memory 2"] = str(refusal)
        if "memory 2" in self.absent:
            memory = self._buffers.setdefault("memory 1", Memory())
            self._ask("nvmlDeviceGetMemoryInfo", ctypes.byref(memory))
        self._device.memory_bytes = int(memory.total)
        return float(memory.used)

    def _memory_total(self) -> float:
        self._memory_used()
        return NAN if self._device.memory_bytes is None else float(self._device.memory_bytes)

    def _power(self) -> float:
        if not self._whole:
            raise Refused(FOR_GOOD[0], _OF_WHOLE_GPU)
        if "energy" not in self.absent:
            energy = self._buffers.setdefault("energy", ctypes.c_ulonglong())
            try:
                self._ask("nvmlDeviceGetTotalEnergyConsumption", ctypes.byref(energy))
                return self._rate("energy", energy.value / 1000, time.monotonic())
            except Refused as refusal:
                if refusal.code not in FOR_GOOD:
                    raise
                self.absent["energy"] = str(refusal)
        return self._number("nvmlDeviceGetPowerUsage") / 1000

    def _clock(self) -> float:
        return self._number("nvmlDeviceGetClockInfo", _SM_CLOCK) * 1e6

    def _clock_max(self) -> float:
        return self._slowly(
            "clock_max", PROCESSES_S, lambda: self._number("nvmlDeviceGetMaxClockInfo", _SM_CLOCK) * 1e6
        )

    def _temperature(self) -> float:
        return self._slowly("temperature", SLOW_S, lambda: float(self._number("nvmlDeviceGetTemperature", _GPU_SENSOR)))

    def _throttle_thermal(self) -> float:
        return self._throttle(_THERMAL_POLICY, _THERMAL_BITS)

    def _throttle_power(self) -> float:
        return self._throttle(_POWER_POLICY, _POWER_BITS)

    def _throttle(self, policy: int, bits: int) -> float:
        """Return the share of time from the driver's counter, else whether it is so now."""
        name = f"policy {policy}"
        if name not in self.absent:
            spent = self._buffers.setdefault(name, Violation())
            try:
                self._ask("nvmlDeviceGetViolationStatus", policy, ctypes.byref(spent), handle=self._device.whole)
                share = self._rate(name, spent.violation_ns / 1e9, spent.reference_us / 1e6)
                return share if share != share else min(1.0, share)
            except Refused as refusal:
                if refusal.code not in FOR_GOOD:
                    raise
                self.absent[name] = str(refusal)
        return 1.0 if self._reasons() & bits else 0.0

    def _reasons(self) -> int:
        """Return why clocks are low now; drivers before 535 know the call by its older name."""
        reasons = self._buffers.setdefault("reasons", ctypes.c_ulonglong())
        functions = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
        function = functions["reasons" in self.absent]
        try:
            self._ask(function, ctypes.byref(reasons), handle=self._device.whole)
        except Refused as refusal:
            if refusal.code in GONE or function == functions[1]:
                raise
            self.absent["reasons"] = str(refusal)
            return self._reasons()
        return int(reasons.value)

    def _processes(self) -> float:
        return self._slowly("processes", PROCESSES_S, self._read_processes)

    def _read_processes(self) -> float:
        if "processes" not in self._buffers:
            self._buffers["processes"] = (Process * _MOST_PROCESSES)()
        found = self._buffers["processes"]
        count = ctypes.c_uint(_MOST_PROCESSES)
        self._ask("nvmlDeviceGetComputeRunningProcesses_v3", ctypes.byref(count), found)
        self.pids = [found[index].pid for index in range(min(count.value, _MOST_PROCESSES))]
        return float(count.value)

    def _utilization(self, part: str) -> float:
        rates = self._buffers.setdefault("utilization", Utilization())
        if part == "gpu" or "gpu_utilization_ratio" in self.absent:
            self._ask("nvmlDeviceGetUtilizationRates", ctypes.byref(rates))
        return float(getattr(rates, part)) / 100

    def _traffic(self, field: int, scope: int, bytes_each: int) -> float:
        if not self._whole:
            raise Refused(FOR_GOOD[0], _OF_WHOLE_GPU)
        name = f"field {field}"
        value = self._buffers.setdefault(name, FieldValue(field=field))
        value.field, value.scope = field, scope
        self._ask("nvmlDeviceGetFieldValues", 1, ctypes.byref(value))
        if value.code != SUCCESS:
            raise Refused(value.code, f"NVML: {self._nvml.words(value.code)}")
        return self._rate(name, value.value * bytes_each, self._now)
