"""The calls of amdsmi that are used, answering from AMD_GPUS (JSON); put on PYTHONPATH as `amdsmi`."""

import enum
import json
import os


class AmdSmiException(Exception):
    pass


class AmdSmiLibraryException(AmdSmiException):
    def __init__(self, err_code):
        super().__init__(err_code)
        self.err_code = err_code

    def __str__(self):
        return f"Error code:\n\t{self.err_code} | AMDSMI_STATUS"


AmdSmiMemoryType = enum.IntEnum("AmdSmiMemoryType", "VRAM GTT")
AmdSmiTemperatureType = enum.IntEnum("AmdSmiTemperatureType", "EDGE HOTSPOT VRAM")
AmdSmiTemperatureMetric = enum.IntEnum("AmdSmiTemperatureMetric", "CURRENT CRITICAL")
AmdSmiClkType = enum.IntEnum("AmdSmiClkType", "SYS GFX MEM")
AmdSmiMemoryPageStatus = enum.IntEnum("AmdSmiMemoryPageStatus", "RESERVED PENDING UNRESERVABLE", start=0)
STATE = json.loads(os.environ["AMD_GPUS"])


def amdsmi_init():
    if "init_error" in STATE:
        raise AmdSmiLibraryException(STATE["init_error"])


def amdsmi_shut_down():
    pass


def amdsmi_get_processor_handles():
    return list(range(len(STATE["gpus"])))


def _value(handle, name):
    value = STATE["gpus"][handle].get(name, {"error": 2})
    if isinstance(value, dict) and "error" in value:
        raise AmdSmiLibraryException(value["error"])
    return value


def amdsmi_get_gpu_device_uuid(handle):
    return _value(handle, "uuid")


def amdsmi_get_gpu_device_bdf(handle):
    return f"0000:{0xC1 + handle:02x}:00.0"


def amdsmi_get_gpu_asic_info(handle):
    return {"market_name": _value(handle, "name")}


def amdsmi_get_gpu_driver_info(handle):
    return {"driver_version": "6.12.12"}


def amdsmi_get_gpu_memory_total(handle, kind):
    return _value(handle, "memory_total")


def amdsmi_get_gpu_memory_usage(handle, kind):
    return _value(handle, "memory_used")


def amdsmi_get_gpu_process_list(handle):
    return [{"pid": pid, "memory_usage": {"vram_mem": 1 << 30}} for pid in _value(handle, "processes")]


def amdsmi_get_temp_metric(handle, kind, metric):
    return _value(handle, "temperature") if metric == AmdSmiTemperatureMetric.CURRENT else 105


def amdsmi_get_violation_status(handle):
    return {"active_socket_thrm": _value(handle, "hot"), "active_ppt_pwr": "N/A"}


def amdsmi_get_gpu_total_ecc_count(handle):
    return {"correctable_count": 0, "uncorrectable_count": _value(handle, "uncorrectable"), "deferred_count": 0}


def amdsmi_get_gpu_bad_page_info(handle):
    return [{"status": status} for status in _value(handle, "bad_pages")]


def amdsmi_get_pcie_info(handle):
    metric = {"pcie_width": _value(handle, "width"), "pcie_replay_count": "N/A"}
    return {"pcie_static": {"max_pcie_width": 16}, "pcie_metric": metric}


def amdsmi_get_gpu_metrics_info(handle):
    return _value(handle, "metrics")


def amdsmi_get_energy_count(handle):
    ticks = _value(handle, "energy_ticks")
    STATE["gpus"][handle]["energy_ticks"] = ticks + STATE["gpus"][handle].get("energy_growth", 0)
    return {
        "energy_accumulator": ticks,
        "counter_resolution": 15.3,
        "timestamp": STATE["gpus"][handle].get("time_ns", 0),
    }


def amdsmi_get_power_info(handle):
    return _value(handle, "power")


def amdsmi_get_clock_info(handle, kind):
    return {"clk": _value(handle, "clock"), "min_clk": 132, "max_clk": 2100} if kind == AmdSmiClkType.GFX else {}
