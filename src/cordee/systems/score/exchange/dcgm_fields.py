"""DCGM's fields as standard metrics: names, units, and what has to be worked out from several.

Names and units: NVIDIA's DCGM field identifiers (dcgm_fields.h) and dcgm-exporter's default-counters.csv. The byte rates of
the profiling fields are rates, although old lists of dcgm-exporter call them counters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cordee.systems.score.exchange.imported import FoundDevice, ImportedSamples
from cordee.telemetry.node.catalogue import METRICS

if TYPE_CHECKING:
    import numpy as np

MIB = float(1 << 20)
SCALED = {
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": ("gpu_graphics_ratio", 1.0),
    "DCGM_FI_PROF_SM_ACTIVE": ("gpu_sm_ratio", 1.0),
    "DCGM_FI_PROF_SM_OCCUPANCY": ("gpu_occupancy_ratio", 1.0),
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": ("gpu_tensor_ratio", 1.0),
    "DCGM_FI_PROF_PIPE_TENSOR_DFMA_ACTIVE": ("gpu_tensor_dfma_ratio", 1.0),
    "DCGM_FI_PROF_PIPE_TENSOR_HMMA_ACTIVE": ("gpu_tensor_hmma_ratio", 1.0),
    "DCGM_FI_PROF_PIPE_TENSOR_IMMA_ACTIVE": ("gpu_tensor_imma_ratio", 1.0),
    "DCGM_FI_PROF_PIPE_FP64_ACTIVE": ("gpu_fp64_ratio", 1.0),
    "DCGM_FI_PROF_PIPE_FP32_ACTIVE": ("gpu_fp32_ratio", 1.0),
    "DCGM_FI_PROF_PIPE_FP16_ACTIVE": ("gpu_fp16_ratio", 1.0),
    "DCGM_FI_PROF_DRAM_ACTIVE": ("gpu_dram_ratio", 1.0),
    "DCGM_FI_PROF_PCIE_TX_BYTES": ("gpu_pcie_transmit_bytes_per_second", 1.0),
    "DCGM_FI_PROF_PCIE_RX_BYTES": ("gpu_pcie_receive_bytes_per_second", 1.0),
    "DCGM_FI_PROF_C2C_TX_ALL_BYTES": ("gpu_c2c_transmit_bytes_per_second", 1.0),
    "DCGM_FI_PROF_C2C_RX_ALL_BYTES": ("gpu_c2c_receive_bytes_per_second", 1.0),
    "DCGM_FI_PROF_NVLINK_TX_BYTES": ("gpu_nvlink_transmit_bytes_per_second", 1.0),
    "DCGM_FI_PROF_NVLINK_RX_BYTES": ("gpu_nvlink_receive_bytes_per_second", 1.0),
    "DCGM_FI_DEV_GPU_UTIL": ("gpu_utilization_ratio", 0.01),
    "DCGM_FI_DEV_MEM_COPY_UTIL": ("gpu_memory_busy_ratio", 0.01),
    "DCGM_FI_DEV_FB_USED": ("gpu_memory_used_bytes", MIB),
    "DCGM_FI_DEV_FB_TOTAL": ("gpu_memory_total_bytes", MIB),
    "DCGM_FI_DEV_POWER_USAGE": ("gpu_power_watts", 1.0),
    "DCGM_FI_DEV_SM_CLOCK": ("gpu_clock_sm_hertz", 1e6),
    "DCGM_FI_DEV_MAX_SM_CLOCK": ("gpu_clock_sm_max_hertz", 1e6),
    "DCGM_FI_DEV_GPU_TEMP": ("gpu_temperature_celsius", 1.0),
}
# The short names that DCGM's Python bindings give to the same fields.
TAGS = {
    "gr_engine_active": "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
    "sm_active": "DCGM_FI_PROF_SM_ACTIVE",
    "sm_occupancy": "DCGM_FI_PROF_SM_OCCUPANCY",
    "tensor_active": "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
    "fp64_active": "DCGM_FI_PROF_PIPE_FP64_ACTIVE",
    "fp32_active": "DCGM_FI_PROF_PIPE_FP32_ACTIVE",
    "fp16_active": "DCGM_FI_PROF_PIPE_FP16_ACTIVE",
    "dram_active": "DCGM_FI_PROF_DRAM_ACTIVE",
    "pcie_tx_bytes": "DCGM_FI_PROF_PCIE_TX_BYTES",
    "pcie_rx_bytes": "DCGM_FI_PROF_PCIE_RX_BYTES",
    "nvlink_tx_bytes": "DCGM_FI_PROF_NVLINK_TX_BYTES",
    "nvlink_rx_bytes": "DCGM_FI_PROF_NVLINK_RX_BYTES",
    "gpu_utilization": "DCGM_FI_DEV_GPU_UTIL",
    "mem_copy_utilization": "DCGM_FI_DEV_MEM_COPY_UTIL",
    "fb_total": "DCGM_FI_DEV_FB_TOTAL",
    "fb_used": "DCGM_FI_DEV_FB_USED",
    "fb_free": "DCGM_FI_DEV_FB_FREE",
    "fb_resv": "DCGM_FI_DEV_FB_RESERVED",
    "power_usage": "DCGM_FI_DEV_POWER_USAGE",
    "total_energy_consumption": "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
    "sm_clock": "DCGM_FI_DEV_SM_CLOCK",
    "gpu_temp": "DCGM_FI_DEV_GPU_TEMP",
}
ENERGY_MJ = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"  # a counter
_MEMORY = ("DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE")
_RESERVED = "DCGM_FI_DEV_FB_RESERVED"
_REASONS = ("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS")
# What is more cannot be: percent taken for ratios, a counter taken for a rate. Ratios may be a little over 1 by rounding.
_MOST = {"ratio": 1.02, "bytes/s": 1e13, "watts": 1e5, "celsius": 200.0}
_THERMAL_BITS = 0x20 | 0x40
_POWER_BITS = 0x4 | 0x80
KNOWN = {*SCALED, ENERGY_MJ, *_MEMORY, _RESERVED, *_REASONS}


def without_blanks(values: np.ndarray) -> np.ndarray:
    """Return values with NaN for what DCGM writes where it has none: the ends of int32, int64 and 2^47 and a little more."""
    import numpy as np

    blank = (values >= 2.0**63 - 2048) | ((values >= 2.0**47) & (values <= 2.0**47 + 16))
    blank |= (values >= 0x7FFFFFF0) & (values <= 0x7FFFFFFF) & (values == np.floor(values))
    return np.where(blank, np.nan, values)


def standardise(found: ImportedSamples) -> None:
    """Fill `metrics` of every device from its raw DCGM fields; fields that no standard metric answers to are counted.

    Power is the increase of the energy counter where there is one, else the power at the moment; all of the memory is the sum
    of used, free and reserved where nobody gave it.
    """
    for device in found.devices.values():
        for name, series in device.raw.items():
            times, values = series.whole()
            values = without_blanks(values)
            if name in SCALED:
                metric, scale = SCALED[name]
                device.metrics[metric] = times, values * scale
            elif name not in KNOWN:
                found.unknown[name] = found.unknown.get(name, 0) + len(values)
        _memory(device)
        _power(device)
        _throttling(device)
        device.raw.clear()
    _leave_out_impossible(found)


def _leave_out_impossible(found: ImportedSamples) -> None:
    """Take ratios over 1 and negative values for missing, and say how many they were; a ratio a little over 1 is 1."""
    import numpy as np

    counted: dict[str, int] = {}
    for device in found.devices.values():
        for name, (times, values) in device.metrics.items():
            unit = METRICS[name].unit
            most = _MOST.get(unit, np.inf)
            bad = (values > most) | (values < 0) | np.isinf(values)
            counted[name] = counted.get(name, 0) + int(bad.sum())
            values = np.where(bad, np.nan, values)
            device.metrics[name] = times, np.minimum(values, 1.0) if unit == "ratio" else values
    for name, count in counted.items():
        if count:
            found.remark(f"{count} values of {name} were left out: no {METRICS[name].unit} can be that")


def _memory(device: FoundDevice) -> None:
    if "gpu_memory_total_bytes" in device.metrics or not all(name in device.raw for name in _MEMORY):
        return
    times, total = _summed(device, [name for name in (*_MEMORY, _RESERVED) if name in device.raw])
    device.metrics["gpu_memory_total_bytes"] = times, total * MIB


def _summed(device: FoundDevice, names: list[str]) -> tuple[np.ndarray, np.ndarray]:
    import numpy as np

    times, total = device.raw[names[0]].whole()
    total = without_blanks(total)
    for name in names[1:]:
        other_times, other = device.raw[name].whole()
        times, here, there = np.intersect1d(times, other_times, return_indices=True)
        total = total[here] + without_blanks(other)[there]
    return times, total


def _power(device: FoundDevice) -> None:
    if ENERGY_MJ not in device.raw:
        return
    import numpy as np

    times, energy_mj = device.raw[ENERGY_MJ].whole()
    if len(times) < 2:
        return
    increase = np.diff(without_blanks(energy_mj)) / 1e3
    watts = np.where(increase >= 0, increase / np.diff(times), np.nan)
    momentary = device.metrics.get("gpu_power_watts")
    if momentary is not None:
        known = np.interp(times[1:], *momentary)
        watts = np.where(np.isnan(watts), known, watts)
    device.metrics["gpu_power_watts"] = times[1:], watts


def _throttling(device: FoundDevice) -> None:
    import numpy as np

    for name in _REASONS:
        if name in device.raw:
            times, bits = device.raw[name].whole()
            bits = without_blanks(bits)
            known = np.isfinite(bits)
            whole = np.where(known, bits, 0).astype(np.int64)
            for metric, mask in (
                ("gpu_throttle_thermal_ratio", _THERMAL_BITS),
                ("gpu_throttle_power_ratio", _POWER_BITS),
            ):
                device.metrics[metric] = times, np.where(known, (whole & mask != 0).astype(float), np.nan)
