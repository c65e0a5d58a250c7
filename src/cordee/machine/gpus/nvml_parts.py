"""The parts of what NVML says of one GPU: memory, processes, heat, throttling, ECC, PCIe, NVLink."""

from __future__ import annotations

import ctypes
from typing import Any, Callable, Optional

from cordee.machine.gpus.model import THROTTLE_REASONS, GpuLink, GpuProcess

# A `cordee.machine.gpus.nvml.NvmlDevice`, which imports this module.
Device = Any

_FUNCTION_MISSING = "absent"
_GPU_SENSOR, _SLOWDOWN_THRESHOLD, _SM_CLOCK = 0, 1, 1
_CORRECTED, _UNCORRECTABLE, _VOLATILE, _AGGREGATE = 0, 1, 0, 1
_MEMORY_TEMPERATURE_FIELD = 82
_MOST_LINKS = 36
_LINK_UP = (1, 2)  # active, or asleep for want of traffic
_LINK_COUNTERS = {"replay": 0, "recovery": 1, "crc_flit": 2, "crc_data": 3}
# Of links of the fifth generation, which have none of these.
_LINK_FIELDS = {"receive errors": 208, "recovery": 215, "effective errors": 219}
_FABRIC_DONE, _FABRIC_STATES = 3, ("", "was not started", "is still being set up")


def memory(device: Device) -> None:
    """Read how much memory there is and is used."""
    version_2 = getattr(device.nvml, "nvmlMemory_v2", None)
    answer = device.ask("memory_used_bytes", "nvmlDeviceGetMemoryInfo", version_2) if version_2 else None
    if answer is None:
        device.gpu.missing.pop("memory_used_bytes", None)
        answer = device.ask("memory_used_bytes", "nvmlDeviceGetMemoryInfo")
    if answer is not None:
        device.gpu.memory_total_bytes, device.gpu.memory_used_bytes = answer.total, answer.used
    elif "memory_used_bytes" in device.gpu.missing:
        device.gpu.missing["memory_total_bytes"] = device.gpu.missing["memory_used_bytes"]


def processes(device: Device) -> None:
    """Read who holds memory of it."""
    compute = device.ask("processes", "nvmlDeviceGetComputeRunningProcesses")
    if compute is None:
        return
    found = [GpuProcess(entry.pid, entry.usedGpuMemory) for entry in compute]
    graphics = device.ask("graphics_processes", "nvmlDeviceGetGraphicsRunningProcesses") or []
    known = {process.pid for process in found}
    found += [GpuProcess(entry.pid, entry.usedGpuMemory, True) for entry in graphics if entry.pid not in known]
    device.gpu.processes = found


def heat(device: Device) -> None:
    """Read temperatures, power and clocks."""
    device.take("temperature_c", "nvmlDeviceGetTemperature", _GPU_SENSOR)
    device.take("slowdown_temperature_c", "nvmlDeviceGetTemperatureThreshold", _SLOWDOWN_THRESHOLD)
    device.take_field("memory_temperature_c", _MEMORY_TEMPERATURE_FIELD)
    device.take("power_w", "nvmlDeviceGetPowerUsage", convert=_watts)
    device.take("power_limit_w", "nvmlDeviceGetEnforcedPowerLimit", convert=_watts)
    device.take("clock_sm_mhz", "nvmlDeviceGetClockInfo", _SM_CLOCK)


def throttle(device: Device) -> None:
    """Read why the clocks are not at their highest; drivers before 535 know the call by its older name."""
    name = "throttle_reasons"
    device.take(name, "nvmlDeviceGetCurrentClocksEventReasons", convert=_throttle_reasons)
    if name in device.gpu.missing and device.gpu.missing[name].cause == _FUNCTION_MISSING:
        del device.gpu.missing[name]
        device.take(name, "nvmlDeviceGetCurrentClocksThrottleReasons", convert=_throttle_reasons)


def ecc(device: Device) -> None:
    """Read errors of the memory and what was done about them: rows remapped, on older GPUs pages retired."""
    gpu = device.gpu
    device.take("ecc_enabled", "nvmlDeviceGetEccMode", convert=lambda mode: bool(mode[0]))
    for name, kind, span in (
        ("ecc_corrected", _CORRECTED, _VOLATILE),
        ("ecc_uncorrectable", _UNCORRECTABLE, _VOLATILE),
        ("ecc_aggregate_corrected", _CORRECTED, _AGGREGATE),
        ("ecc_aggregate_uncorrectable", _UNCORRECTABLE, _AGGREGATE),
    ):
        device.take(name, "nvmlDeviceGetTotalEccErrors", kind, span)
    _sram(device)
    remapped = device.ask("remap_failure", "nvmlDeviceGetRemappedRows")
    if remapped is not None:
        gpu.remapped_rows_corrected, gpu.remapped_rows_uncorrectable = remapped[0], remapped[1]
        gpu.remap_pending, gpu.remap_failure = bool(remapped[2]), bool(remapped[3])
    device.take("remap_banks", "nvmlDeviceGetRowRemapperHistogram", convert=_banks)
    pages = [device.ask("retired_pages", "nvmlDeviceGetRetiredPages", cause) for cause in (0, 1)]
    if None not in pages:
        gpu.retired_pages = sum(len(found) for found in pages)
    device.take("retired_pending", "nvmlDeviceGetRetiredPagesPendingStatus", convert=bool)


def _sram(device: Device) -> None:
    name = "sram_threshold_exceeded"
    if not hasattr(device.nvml, "c_nvmlEccSramErrorStatus_v1_t"):
        return
    status = device.nvml.c_nvmlEccSramErrorStatus_v1_t()
    function = "nvmlDeviceGetSramEccErrorStatus"
    device.take(name, function, ctypes.byref(status), convert=lambda _: bool(status.bThresholdExceeded))


def pcie(device: Device) -> None:
    """Read how the GPU is connected, and how busy it is: an idle one lowers the generation."""
    device.take("pcie_generation", "nvmlDeviceGetCurrPcieLinkGeneration")
    device.take("pcie_generation_max", "nvmlDeviceGetMaxPcieLinkGeneration")
    device.take("pcie_width", "nvmlDeviceGetCurrPcieLinkWidth")
    device.take("pcie_width_max", "nvmlDeviceGetMaxPcieLinkWidth")
    device.take("pcie_replays", "nvmlDeviceGetPcieReplayCounter")
    device.take("utilization_ratio", "nvmlDeviceGetUtilizationRates", convert=lambda rates: rates.gpu / 100)


def links(device: Device) -> None:
    """Read the NVLinks with their error counters, and whether the fabric of NVSwitches has the GPU."""
    found: list[GpuLink] = []
    for link in range(_MOST_LINKS):
        state = device.ask("links", "nvmlDeviceGetNvLinkState", link)
        if state is None:
            if found and device.gpu.missing["links"].cause == "absent":
                del device.gpu.missing["links"]  # the last one was the link before
            break
        found.append(GpuLink(link, state in _LINK_UP, _link_errors(device, link)))
    if "links" not in device.gpu.missing:
        device.gpu.links = found
    device.gpu.fabric_fault = _fabric_fault(device)


def _link_errors(device: Device, link: int) -> dict[str, int]:
    found: dict[str, int] = {}
    for name, counter in _LINK_COUNTERS.items():
        answer = device.ask("link_errors", "nvmlDeviceGetNvLinkErrorCounter", link, counter)
        if answer is not None:
            found[name] = answer
    if found:
        return found
    for name, field in _LINK_FIELDS.items():
        answer = device.field("link_errors", field, link)
        if answer is not None:
            found[name] = answer
    return found


def _fabric_fault(device: Device) -> Optional[str]:
    if not hasattr(device.nvml, "c_nvmlGpuFabricInfo_v2_t"):
        return None
    info = device.nvml.c_nvmlGpuFabricInfo_v2_t()
    name = "fabric_fault"
    if device.ask(name, "nvmlDeviceGetGpuFabricInfoV", ctypes.byref(info)) is None or info.state == 0:
        return None
    if info.state != _FABRIC_DONE:
        return f"the fabric of its NVLinks {_FABRIC_STATES[info.state]}: is the fabric manager running?"
    if info.status:
        return f"the fabric of its NVLinks refused it: {device.nvml.NVMLError(info.status)}"
    if info.healthMask & 3 == 1:
        return "the fabric of its NVLinks runs with degraded bandwidth"
    return ""


def _watts(milliwatts: int) -> float:
    return milliwatts / 1000


def _throttle_reasons(bits: int) -> list[str]:
    return [name for position, name in enumerate(THROTTLE_REASONS) if bits >> position & 1]


def _banks(histogram: Any) -> dict[str, int]:
    return {name: getattr(histogram, name) for name in ("max", "high", "partial", "low", "none")}


READERS: dict[str, Callable[[Device], None]] = {
    "memory": memory,
    "processes": processes,
    "heat": heat,
    "throttle": throttle,
    "ecc": ecc,
    "pcie": pcie,
    "links": links,
}
