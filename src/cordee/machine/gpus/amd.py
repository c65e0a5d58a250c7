"""What AMD's driver says of its GPUs, through the Python module amdsmi that comes with ROCm.

The module is optional and deferred. What it does not tell is None with the reason, as with NVML.
"""

from __future__ import annotations

import contextlib
import io
from typing import Any, Callable, Iterable, Optional

from cordee.machine.gpus.model import Gpu, GpuProcess, GpuSource, GpusUnreadable, MissingValue, bus_id

_NOT_SUPPORTED, _NO_PERMISSION, _DRIVER_NOT_LOADED, _NO_DRIVER = 2, 10, 34, 51
# What the driver tells of clocks that are held down, in the words of NVML where they mean the same.
_VIOLATIONS = {
    "active_prochot_thrm": "hardware thermal",
    "active_socket_thrm": "hardware thermal",
    "active_vr_thrm": "hardware thermal",
    "active_hbm_thrm": "hardware thermal",
    "active_ppt_pwr": "software power cap",
}


class AmdSource(GpuSource):
    """amdsmi, opened.

    Attributes:
        smi: the module.
        handles: what it calls the GPUs.

    Raises:
        GpusUnreadable: the module, its library or the driver is missing (`absent`), or refuses (`closed`, `error`).
    """

    vendor = "AMD"

    def __init__(self) -> None:
        self.smi = _module()
        try:
            self.smi.amdsmi_init()
            self.handles = self.smi.amdsmi_get_processor_handles()
        except self.smi.AmdSmiException as error:
            code = getattr(error, "err_code", 0)
            cause = {_NO_PERMISSION: "closed", _DRIVER_NOT_LOADED: "absent", _NO_DRIVER: "absent"}.get(code, "error")
            raise GpusUnreadable(f"amdsmi: {_words(error)}", cause) from None
        if not self.handles:
            raise GpusUnreadable("amdsmi finds no GPU", "absent")

    def read(self, parts: Iterable[str] = ()) -> list[Gpu]:
        found = [_Device(self.smi, handle, Gpu(index)) for index, handle in enumerate(self.handles)]
        for device in found:
            device.identify()
            for part in parts:
                _READERS[part](device)
        if found and self.driver_version is None:
            driver = found[0].ask("driver_version", "amdsmi_get_gpu_driver_info")
            self.driver_version = driver["driver_version"] if driver else None
        return [device.gpu for device in found]


class _Device:
    def __init__(self, smi: Any, handle: Any, gpu: Gpu) -> None:
        self.smi, self.handle, self.gpu = smi, handle, gpu

    def identify(self) -> None:
        self.take("uuid", "amdsmi_get_gpu_device_uuid")
        self.take("pci_bus_id", "amdsmi_get_gpu_device_bdf", convert=bus_id)
        self.take("name", "amdsmi_get_gpu_asic_info", convert=lambda asic: asic["market_name"])

    def ask(self, name: str, function: str, *arguments: Any) -> Any:
        try:
            return getattr(self.smi, function)(self.handle, *arguments)
        except AttributeError:
            self.gpu.missing[name] = MissingValue(f"this amdsmi has no {function}", "absent")
        except self.smi.AmdSmiException as error:
            cause = {_NO_PERMISSION: "closed", _NOT_SUPPORTED: "absent"}
            self.gpu.missing[name] = MissingValue(
                f"amdsmi: {_words(error)}", cause.get(getattr(error, "err_code", 0), "error")
            )
        return None

    def take(self, name: str, function: str, *arguments: Any, convert: Optional[Callable[[Any], Any]] = None) -> None:
        answer = self.ask(name, function, *arguments)
        if answer is None:
            return
        value = convert(answer) if convert else answer
        if value == "N/A":
            self.gpu.missing[name] = MissingValue("amdsmi: N/A", "absent")
        else:
            setattr(self.gpu, name, value)


def _memory(device: _Device) -> None:
    kind = device.smi.AmdSmiMemoryType.VRAM
    device.take("memory_total_bytes", "amdsmi_get_gpu_memory_total", kind)
    device.take("memory_used_bytes", "amdsmi_get_gpu_memory_usage", kind)


def _processes(device: _Device) -> None:
    entries = device.ask("processes", "amdsmi_get_gpu_process_list")
    if entries is not None:
        device.gpu.processes = [GpuProcess(entry["pid"], entry["memory_usage"]["vram_mem"]) for entry in entries]


def _heat(device: _Device) -> None:
    kinds, metrics = device.smi.AmdSmiTemperatureType, device.smi.AmdSmiTemperatureMetric
    device.take("temperature_c", "amdsmi_get_temp_metric", kinds.HOTSPOT, metrics.CURRENT)
    device.take("memory_temperature_c", "amdsmi_get_temp_metric", kinds.VRAM, metrics.CURRENT)
    device.take("slowdown_temperature_c", "amdsmi_get_temp_metric", kinds.HOTSPOT, metrics.CRITICAL)


def _throttle(device: _Device) -> None:
    status = device.ask("throttle_reasons", "amdsmi_get_violation_status")
    if status is not None:
        active = {reason for key, reason in _VIOLATIONS.items() if status.get(key) is True}
        device.gpu.throttle_reasons = sorted(active)


def _ecc(device: _Device) -> None:
    counts = device.ask("ecc_uncorrectable", "amdsmi_get_gpu_total_ecc_count")
    if counts is not None:
        device.gpu.ecc_corrected = counts["correctable_count"]
        device.gpu.ecc_uncorrectable = counts["uncorrectable_count"]
    pages = device.ask("retired_pages", "amdsmi_get_gpu_bad_page_info")
    if pages is not None:
        states = device.smi.AmdSmiMemoryPageStatus
        device.gpu.retired_pages = sum(page["status"] == states.RESERVED for page in pages)
        device.gpu.retired_pending = any(page["status"] == states.PENDING for page in pages)
        device.gpu.remap_failure = any(page["status"] == states.UNRESERVABLE for page in pages)


def _pcie(device: _Device) -> None:
    answer = device.ask("pcie_width", "amdsmi_get_pcie_info")
    if answer is None:
        return
    static, metric = answer["pcie_static"], answer["pcie_metric"]
    device.gpu.pcie_width, device.gpu.pcie_width_max = _number(metric["pcie_width"]), _number(static["max_pcie_width"])
    device.gpu.pcie_replays = _number(metric["pcie_replay_count"])


def _links(device: _Device) -> None:
    device.gpu.missing["links"] = MissingValue("links between AMD's GPUs are not looked at", "absent")


def _number(value: Any) -> Optional[int]:
    return value if isinstance(value, int) else None


def _words(error: Exception) -> str:
    return " ".join(str(error).split())


def _module() -> Any:
    """Return amdsmi; it prints to standard output, where results go, when its library is not there."""
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            import amdsmi

            return amdsmi
    except ImportError:
        raise GpusUnreadable("amdsmi is not installed, which would ask AMD's GPUs", "absent") from None
    except Exception as error:
        raise GpusUnreadable(f"amdsmi cannot load its library: {type(error).__name__}: {error}", "absent") from None


_READERS: dict[str, Callable[[_Device], None]] = {
    "memory": _memory,
    "processes": _processes,
    "heat": _heat,
    "throttle": _throttle,
    "ecc": _ecc,
    "pcie": _pcie,
    "links": _links,
}
