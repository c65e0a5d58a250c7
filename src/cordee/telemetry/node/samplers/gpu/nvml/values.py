"""What NVML tells of one device besides GPM: memory, power, clocks, temperature, throttling, processes."""

from __future__ import annotations

import ctypes
import time
from functools import partial
from typing import Any, Callable, Optional

from cordee.telemetry.node.samplers._base import FIRST, NAN
from cordee.telemetry.node.samplers.gpu.nvml.devices import SampledDevice
from cordee.telemetry.node.samplers.gpu.nvml.library import (
    FOR_GOOD,
    GONE,
    SUCCESS,
    FieldValue,
    Memory,
    MemoryV2,
    Nvml,
    NvmlProcess,
    Utilization,
    Violation,
)

_MEMORY_V2 = ctypes.sizeof(MemoryV2) | 2 << 24
_SM_CLOCK, _GPU_SENSOR, _POWER_POLICY, _THERMAL_POLICY = 1, 0, 0, 1
# Bits of the reasons for low clocks (nvmlClocksEventReason...): by software and by hardware.
_POWER_BITS, _THERMAL_BITS = 0x04 | 0x80, 0x20 | 0x40
_MOST_PROCESSES = 256
# Fields of counters: bytes over PCIe; KiB over all NVLinks (the scope of all of them has all bits set).
_PCIE_SENT, _PCIE_RECEIVED, _NVLINK_SENT, _NVLINK_RECEIVED = 197, 198, 138, 139
_ALL_LINKS = 0xFFFFFFFF
_INTEGERS = (1, 2, 3)  # nvmlValueType_t: unsigned int, long, long long
_OF_WHOLE_GPU = "NVML tells it of the whole GPU only, not of an instance"

# How often what changes slowly or costs much is read: the last value stands in between.
SLOW_S, PROCESSES_S = 1.0, 10.0


class ValueRefused(Exception):
    """A value that cannot be had now, with NVML's error code and the reason."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class _Call:
    """One question to one device: the function, its arguments and the buffer for its answer, put together once."""

    def __init__(self, nvml: Nvml, function: str, handle: Any, *arguments: Any, answer: Any) -> None:
        self._nvml = nvml
        self._function = partial(nvml.function(function), handle, *arguments, ctypes.byref(answer))
        self._answer = answer

    def __call__(self) -> Any:
        """Ask, and return the buffer; raises Refused with NVML's error code."""
        code = self._function()
        if code != SUCCESS:
            raise ValueRefused(code, f"NVML: {self._nvml.words(code)}")
        return self._answer


class Values:
    """Reads one device; what the driver refuses for good is not asked again.

    Clock, temperature and throttling are those of the whole GPU, also for an instance.

    Args:
        coarse: read the coarse counters of activity and traffic too, which GPM makes needless.

    Attributes:
        readers: what is read, by the name of the metric.
        absent: why a metric will not be had from this device, by its name.
        gone: why the device as a whole does not answer, after `read`.
        pids: the processes that hold memory of the device, when they were last read.
    """

    def __init__(self, nvml: Nvml, device: SampledDevice, coarse: bool) -> None:
        self._nvml, self._device = nvml, device
        self._calls: dict[str, _Call] = {}
        self._counters: dict[str, tuple[float, float]] = {}
        self._kept: dict[str, tuple[float, float]] = {}
        self._now = 0.0
        self._began: Optional[float] = None
        self.pids: list[int] = []
        self.gone: Optional[str] = None
        self.absent: dict[str, str] = {}
        self.readers: dict[str, Callable[[], float]] = {
            "gpu_memory_used_bytes": partial(self._slowly, "memory", SLOW_S, self._memory),
            "gpu_memory_total_bytes": self._memory_total,
            "gpu_power_watts": self._power,
            "gpu_clock_sm_hertz": self._clock,
            "gpu_clock_sm_max_hertz": partial(self._slowly, "clock_max", PROCESSES_S, self._clock_max),
            "gpu_temperature_celsius": partial(self._slowly, "temperature", SLOW_S, self._temperature),
            "gpu_throttle_thermal_ratio": partial(self._throttle, "violation thermal", _THERMAL_POLICY, _THERMAL_BITS),
            "gpu_throttle_power_ratio": partial(self._throttle, "violation power", _POWER_POLICY, _POWER_BITS),
            "gpu_processes": self._processes_now_and_then,
        }
        if coarse:
            self.readers.update(
                gpu_utilization_ratio=self._utilization,
                gpu_memory_busy_ratio=self._memory_busy,
                gpu_pcie_transmit_bytes_per_second=partial(self._traffic, _PCIE_SENT, 0, 1),
                gpu_pcie_receive_bytes_per_second=partial(self._traffic, _PCIE_RECEIVED, 0, 1),
                gpu_nvlink_transmit_bytes_per_second=partial(self._traffic, _NVLINK_SENT, _ALL_LINKS, 1024),
                gpu_nvlink_receive_bytes_per_second=partial(self._traffic, _NVLINK_RECEIVED, _ALL_LINKS, 1024),
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
            except ValueRefused as refusal:
                missing[name], found[name] = str(refusal), NAN
                if refusal.code in GONE:
                    self.gone = str(refusal)
                    return found
                if refusal.code in FOR_GOOD:
                    self.absent[name] = str(refusal)
        return found

    def _ask(self, name: str, function: str, answer: Callable[[], Any], *arguments: Any, whole: bool = True) -> Any:
        """Return what a function tells of the whole GPU or of this instance; the call is put together the first time."""
        call = self._calls.get(name)
        if call is None:
            handle = self._device.whole if whole else self._device.handle
            call = self._calls[name] = _Call(self._nvml, function, handle, *arguments, answer=answer())
        return call()

    def _else(self, name: str, ask: Callable[[], Any]) -> Any:
        """Return what is asked, or None once the driver has refused it for good: there is another way."""
        if name in self.absent:
            return None
        try:
            return ask()
        except ValueRefused as refusal:
            if refusal.code not in FOR_GOOD:
                raise
            self.absent[name] = str(refusal)
            return None

    def _slowly(self, name: str, every_s: float, read: Callable[[], float]) -> float:
        kept = self._kept.get(name)
        if kept is None or kept[1] != kept[1] or self._now - kept[0] >= every_s * 0.95:
            kept = self._kept[name] = (self._now, read())
        return kept[1]

    def _rate(self, name: str, counter: float, at_s: float) -> float:
        before, self._counters[name] = self._counters.get(name), (counter, at_s)
        if before is None or counter < before[0] or at_s <= before[1]:
            return NAN
        return (counter - before[0]) / (at_s - before[1])

    def _memory(self) -> float:
        memory = self._else("memory 2", self._memory_2)
        if memory is None:
            memory = self._ask("memory 1", "nvmlDeviceGetMemoryInfo", Memory, whole=False)
        self._device.memory_bytes = int(memory.total)
        return float(memory.used)

    def _memory_2(self) -> Any:
        version_2 = partial(MemoryV2, _MEMORY_V2)
        return self._ask("memory 2", "nvmlDeviceGetMemoryInfo_v2", version_2, whole=False)

    def _memory_total(self) -> float:
        if self._device.memory_bytes is None:
            raise ValueRefused(SUCCESS, "NVML does not tell it")
        return float(self._device.memory_bytes)

    def _power(self) -> float:
        if self._device.instance is not None:
            raise ValueRefused(FOR_GOOD[0], _OF_WHOLE_GPU)
        energy = self._else("energy", self._energy)
        if energy is not None:
            return self._rate("energy", energy.value / 1000, time.monotonic())
        return float(self._ask("power", "nvmlDeviceGetPowerUsage", ctypes.c_uint).value) / 1000

    def _energy(self) -> Any:
        return self._ask("energy", "nvmlDeviceGetTotalEnergyConsumption", ctypes.c_ulonglong)

    def _clock(self) -> float:
        return float(self._ask("clock", "nvmlDeviceGetClockInfo", ctypes.c_uint, _SM_CLOCK).value) * 1e6

    def _clock_max(self) -> float:
        return float(self._ask("clock_max", "nvmlDeviceGetMaxClockInfo", ctypes.c_uint, _SM_CLOCK).value) * 1e6

    def _temperature(self) -> float:
        return float(self._ask("temperature", "nvmlDeviceGetTemperature", ctypes.c_uint, _GPU_SENSOR).value)

    def _throttle(self, name: str, policy: int, bits: int) -> float:
        """Return the share of the last second from the driver's counter, else whether it is so now."""
        if name not in self.absent:
            share = self._slowly(name, SLOW_S, partial(self._violation, name, policy))
            if name not in self.absent:
                return share
        return 1.0 if self._reasons() & bits else 0.0

    def _violation(self, name: str, policy: int) -> float:
        spent = self._else(name, partial(self._ask, name, "nvmlDeviceGetViolationStatus", Violation, policy))
        if spent is None:
            return NAN
        share = self._rate(name, spent.violation_ns / 1e9, spent.reference_us / 1e6)
        return share if share != share else min(1.0, share)

    def _reasons(self) -> int:
        """Return why clocks are low now; drivers before 535 know the call by its older name."""
        newer = partial(self._ask, "reasons", "nvmlDeviceGetCurrentClocksEventReasons", ctypes.c_ulonglong)
        reasons = self._else("reasons", newer)
        if reasons is None:
            older = "nvmlDeviceGetCurrentClocksThrottleReasons"
            reasons = self._ask("older reasons", older, ctypes.c_ulonglong)
        return int(reasons.value)

    def _processes_now_and_then(self) -> float:
        """Return the number of processes; who comes at the beginning is seen soon."""
        self._began = self._now if self._began is None else self._began
        early = self._now - self._began < PROCESSES_S
        return self._slowly("processes", SLOW_S if early else PROCESSES_S, self._processes)

    def _processes(self) -> float:
        found = (NvmlProcess * _MOST_PROCESSES)()
        count = ctypes.c_uint(_MOST_PROCESSES)
        function = self._nvml.function("nvmlDeviceGetComputeRunningProcesses_v3")
        code = function(self._device.handle, ctypes.byref(count), found)
        if code != SUCCESS:
            raise ValueRefused(code, f"NVML: {self._nvml.words(code)}")
        self.pids = [process.pid for process in found[: min(count.value, _MOST_PROCESSES)]]
        return float(count.value)

    def _utilization(self) -> float:
        return float(self._rates().gpu) / 100

    def _memory_busy(self) -> float:
        return float(self._rates().memory) / 100

    def _rates(self) -> Any:
        return self._ask("utilization", "nvmlDeviceGetUtilizationRates", Utilization, whole=False)

    def _traffic(self, field: int, scope: int, bytes_each: int) -> float:
        if self._device.instance is not None:
            raise ValueRefused(FOR_GOOD[0], _OF_WHOLE_GPU)
        name = f"field {field}"
        answer = partial(FieldValue, field, scope)
        value = self._ask(name, "nvmlDeviceGetFieldValues", answer, 1)
        if value.code != SUCCESS:
            raise ValueRefused(value.code, f"NVML: {self._nvml.words(value.code)}")
        if value.kind not in _INTEGERS:
            raise ValueRefused(FOR_GOOD[0], f"NVML: field {field} is of type {value.kind}, not an integer")
        return self._rate(name, value.value * bytes_each, self._now)
