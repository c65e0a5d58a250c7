"""GPM of one device: sample buffers that are used in turn, and one struct that is asked for all metrics at once."""

from __future__ import annotations

import ctypes
import struct
from typing import Optional, Sequence

from cordee.telemetry.node.samplers._base import FIRST, NAN
from cordee.telemetry.node.samplers.gpu.nvml.devices import SampledDevice
from cordee.telemetry.node.samplers.gpu.nvml.library import GONE, SUCCESS, GpmSupport, Nvml

# Of nvml.h: the metric's id, our name, what one unit of it is. Percent of cycles or of time; MiB/s.
_PERCENT, _MIB = 0.01, float(1 << 20)
METRICS = (
    (1, "gpu_graphics_ratio", _PERCENT),
    (2, "gpu_sm_ratio", _PERCENT),
    (3, "gpu_occupancy_ratio", _PERCENT),
    (5, "gpu_tensor_ratio", _PERCENT),
    (6, "gpu_tensor_dfma_ratio", _PERCENT),
    (7, "gpu_tensor_hmma_ratio", _PERCENT),
    (9, "gpu_tensor_imma_ratio", _PERCENT),
    (10, "gpu_dram_ratio", _PERCENT),
    (11, "gpu_fp64_ratio", _PERCENT),
    (12, "gpu_fp32_ratio", _PERCENT),
    (13, "gpu_fp16_ratio", _PERCENT),
    (20, "gpu_pcie_transmit_bytes_per_second", _MIB),
    (21, "gpu_pcie_receive_bytes_per_second", _MIB),
    (60, "gpu_nvlink_receive_bytes_per_second", _MIB),
    (61, "gpu_nvlink_transmit_bytes_per_second", _MIB),
    (100, "gpu_c2c_transmit_bytes_per_second", _MIB),
    (101, "gpu_c2c_receive_bytes_per_second", _MIB),
)
LEAST_S = 0.1
_EARLY_S = 0.09  # a timer may wake a little early
_MOST = 1.02  # of a ratio: what lies a little above 1 is rounding, what lies further is no measurement
# nvmlGpmMetricsGet_t: version, number of metrics, both samples; then 40 bytes each: id, error code, value, three names.
_HEAD, _ENTRY = struct.Struct("=IIQQ"), struct.Struct("=IId24x")
_VERSION = 1
_ROOM = 512  # entries, more than any header's NVML_GPM_METRIC_MAX so far
_EARLY = f"GPM's samples must lie {LEAST_S:g} s apart"


class Gpm:
    """Reads one device.

    Attributes:
        missing: why metrics will not be had from this device, by name.
        gone: why the device as a whole did not answer the last question.
    """

    def __init__(self, nvml: Nvml, device: SampledDevice) -> None:
        self._nvml, self._device = nvml, device
        self._metrics_get = nvml.function("nvmlGpmMetricsGet")
        self._buffer = ctypes.create_string_buffer(_HEAD.size + _ENTRY.size * _ROOM)
        # One more than the two that are compared: after a tick that came early the one before it is still there.
        self._samples = [ctypes.c_void_p() for _ in range(3)]
        self._taken_at: list[Optional[float]] = [None] * 3
        self._newest = 0
        self._names: list[str] = []
        self._units: list[float] = []
        self._entries = struct.Struct("=")
        self._learned = False
        self.missing: dict[str, str] = {}
        self.gone: Optional[str] = None

    def open(self) -> Optional[str]:
        """Allocate samples; return why the device has no GPM, or None."""
        support = GpmSupport(version=1)
        code = self._nvml.call("nvmlGpmQueryDeviceSupport", self._device.whole, ctypes.byref(support))
        if code != SUCCESS:
            return f"GPM: {self._nvml.words(code)}"
        if not support.supported:
            return "GPM: not supported (it needs Hopper or newer, and a driver of release 525 or newer)"
        for sample in self._samples:
            code = self._nvml.call("nvmlGpmSampleAlloc", ctypes.byref(sample))
            if code != SUCCESS:
                return f"GPM: no memory for samples ({self._nvml.words(code)})"
        return None

    def close(self) -> None:
        """Free the samples."""
        for sample in self._samples:
            if sample.value:
                self._nvml.call("nvmlGpmSampleFree", sample)
                sample.value = None

    def take(self, now_s: float) -> Optional[str]:
        """Take a sample into the oldest buffer; return why not, or None."""
        self.gone = None
        at = (self._newest + 1) % len(self._samples)
        if self._device.instance is None:
            code = self._nvml.function("nvmlGpmSampleGet")(self._device.handle, self._samples[at])
        else:
            function = self._nvml.function("nvmlGpmMigSampleGet")
            code = function(self._device.whole, self._device.instance, self._samples[at])
        if code != SUCCESS:
            reason = f"GPM: {self._nvml.words(code)}"
            self.gone = reason if code in GONE else None
            self._taken_at = [None] * len(self._samples)
            return reason
        self._newest, self._taken_at[at] = at, now_s
        return None

    def learn(self) -> list[str]:
        """Ask for each metric by itself, between two samples; return the names of those that the driver gives."""
        base = self._base()
        if base is None:
            return []
        found: list[tuple[int, str, float]] = []
        for metric in METRICS:
            self._ask_for([metric])
            code = self._compare(base)
            if code == SUCCESS:
                code = int(self._entries.unpack_from(self._buffer, _HEAD.size)[1])
            if code == SUCCESS:
                found.append(metric)
            else:
                self.missing[metric[1]] = f"GPM metric {metric[0]}: {self._nvml.words(code)}"
        self._ask_for(found)
        self._learned = True
        return list(self._names)

    def read(self, now_s: float, missing: dict[str, str]) -> dict[str, float]:
        """Return the means since the sample before by metric; NaN with a reason in `missing` where there is none."""
        missing.update(self.missing)
        reason = self._advance(now_s)
        if reason is not None:
            names = self._names if self._learned else [name for _, name, _ in METRICS]
            missing.update(dict.fromkeys(names, reason))
            return dict.fromkeys(names, NAN)
        return self._values(missing)

    def _advance(self, now_s: float) -> Optional[str]:
        """Take a sample and have it compared with an earlier one; return why that cannot be, or None."""
        reason = self.take(now_s)
        if reason is not None:
            return reason
        base = self._base()
        if base is None:
            return _EARLY if sum(at is not None for at in self._taken_at) > 1 else FIRST
        if not self._learned:
            self.learn()
        code = self._compare(base)
        if code == SUCCESS:
            return None
        reason = f"GPM: {self._nvml.words(code)}"
        self.gone = reason if code in GONE else None
        return reason

    def _base(self) -> Optional[int]:
        """Return the latest buffer that is old enough to be compared with the newest."""
        newest_s = self._taken_at[self._newest]
        for back in range(1, len(self._samples)):
            at = (self._newest - back) % len(self._samples)
            taken_s = self._taken_at[at]
            if taken_s is not None and newest_s is not None and newest_s - taken_s >= _EARLY_S:
                return at
        return None

    def _ask_for(self, metrics: Sequence[tuple[int, str, float]]) -> None:
        self._names = [name for _, name, _ in metrics]
        self._units = [unit for _, _, unit in metrics]
        self._entries = struct.Struct("=" + _ENTRY.format[1:] * len(metrics))
        for index, (number, _, _) in enumerate(metrics):
            _ENTRY.pack_into(self._buffer, _HEAD.size + index * _ENTRY.size, number, 0, 0.0)

    def _compare(self, base: int) -> int:
        """Have the newest sample compared with an earlier one; return the error code."""
        earlier, newest = self._samples[base].value or 0, self._samples[self._newest].value or 0
        _HEAD.pack_into(self._buffer, 0, _VERSION, len(self._names), earlier, newest)
        return int(self._metrics_get(self._buffer))

    def _values(self, missing: dict[str, str]) -> dict[str, float]:
        raw = self._entries.unpack_from(self._buffer, _HEAD.size)
        found: dict[str, float] = {}
        for name, unit, code, value in zip(self._names, self._units, raw[1::3], raw[2::3]):
            scaled = value * unit
            if code != SUCCESS:
                missing[name], scaled = f"GPM: {self._nvml.words(code)}", NAN
            elif not scaled >= 0 or (unit == _PERCENT and scaled > _MOST):
                missing[name], scaled = f"GPM said {value:g}, which cannot be", NAN
            elif unit == _PERCENT and scaled > 1:
                scaled = 1.0
            found[name] = scaled
        return found


def names_of(devices: Sequence[list[str]]) -> list[str]:
    """Return the metrics that at least one device gives."""
    return [name for _, name, _ in METRICS if any(name in given for given in devices)]
