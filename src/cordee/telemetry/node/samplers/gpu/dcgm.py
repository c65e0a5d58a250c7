"""DCGM: the profiling fields of the centre's host engine, where one runs. Written from public headers, not run on a GPU."""

from __future__ import annotations

import os
import time
from typing import Any, Optional, Sequence, Union

from cordee.telemetry.node.samplers._base import NAN
from cordee.telemetry.node.samplers.gpu._base import GpuMetricSource, Roots, SourceUnavailable, chosen
from cordee.telemetry.node.samplers.gpu._dcgm import GONE, SUCCESS, Dcgm, DcgmReader, Value
from cordee.telemetry.node.samplers.gpu.attribution import look

ADDRESS_VARIABLE = "CORDEE_DCGM"
_ADDRESS = "localhost:5555"
# By field of dcgm_fields.h: our name, and what one unit of it is. Ratios are ratios, traffic is in bytes per second.
_PROFILING = {
    1001: ("gpu_graphics_ratio", 1.0),
    1002: ("gpu_sm_ratio", 1.0),
    1003: ("gpu_occupancy_ratio", 1.0),
    1004: ("gpu_tensor_ratio", 1.0),
    1005: ("gpu_dram_ratio", 1.0),
    1006: ("gpu_fp64_ratio", 1.0),
    1007: ("gpu_fp32_ratio", 1.0),
    1008: ("gpu_fp16_ratio", 1.0),
    1009: ("gpu_pcie_transmit_bytes_per_second", 1.0),
    1010: ("gpu_pcie_receive_bytes_per_second", 1.0),
    1011: ("gpu_nvlink_transmit_bytes_per_second", 1.0),
    1012: ("gpu_nvlink_receive_bytes_per_second", 1.0),
    1013: ("gpu_tensor_imma_ratio", 1.0),
    1014: ("gpu_tensor_hmma_ratio", 1.0),
    1015: ("gpu_tensor_dfma_ratio", 1.0),
    1076: ("gpu_c2c_transmit_bytes_per_second", 1.0),
    1078: ("gpu_c2c_receive_bytes_per_second", 1.0),
}
_DEVICE = {
    100: ("gpu_clock_sm_hertz", 1e6),
    113: ("gpu_clock_sm_max_hertz", 1e6),
    150: ("gpu_temperature_celsius", 1.0),
    155: ("gpu_power_watts", 1.0),
    203: ("gpu_utilization_ratio", 0.01),
    204: ("gpu_memory_busy_ratio", 0.01),
    250: ("gpu_memory_total_bytes", float(1 << 20)),
    252: ("gpu_memory_used_bytes", float(1 << 20)),
}
_REASONS = 112  # why clocks are low, with the bits of NVML
_THROTTLE = {"gpu_throttle_power_ratio": 0x04 | 0x80, "gpu_throttle_thermal_ratio": 0x20 | 0x40}
_FIELDS = {**_PROFILING, **_DEVICE}
_WITHOUT_PROFILING = "DCGM gives no profiling fields of these GPUs (it takes a data-centre GPU, Volta or newer)"
_RETRY_S = 5.0
_MOST = 1.02


class DcgmSource(GpuMetricSource):
    """Values that the host engine reads at the wanted cadence.

    The host engine sees all GPUs of the node, whoever's they are; measured are those that are wanted, or that NVML
    shows to this process. MIG instances are not measured this way.

    Args:
        library, nvml: the paths of the libraries of DCGM and NVML; None: where they usually are.
    """

    name = "dcgm"
    least_interval_s = 0.1

    def __init__(
        self,
        wanted: Optional[Sequence[str]] = None,
        interval_s: float = 1.0,
        own: Optional[Roots] = None,
        library: Optional[str] = None,
        nvml: Optional[str] = None,
    ) -> None:
        super().__init__(wanted, interval_s, own)
        self._address = os.environ.get(ADDRESS_VARIABLE) or _ADDRESS
        self._library, self._nvml_library = library, nvml
        self._dcgm: Optional[Dcgm] = None
        self._reader: Optional[DcgmReader] = None
        self._models: dict[str, str] = {}
        self._lost: dict[str, str] = {}
        self._memory: dict[str, float] = {}
        self._retry_at = 0.0

    def probe(self) -> Optional[str]:
        """Connect to the host engine, watch fields and read them once; return why that cannot be, or None."""
        try:
            self._open()
        except SourceUnavailable as error:
            self.close()
            return str(error)
        reasons: dict[str, str] = {}
        given: set[str] = set()
        for found in self._read(reasons).values():
            given.update(found)
        if "gpu_sm_ratio" not in given:
            self.close()
            return f"{_WITHOUT_PROFILING}: {reasons.get('gpu_sm_ratio', 'not told')}"
        self.never = {metric: reason for metric, reason in reasons.items() if metric not in given}
        self.give(list(given), "DCGM does not tell it")
        return None

    def devices(self) -> list[Union[str, int]]:
        """Return the UUIDs of GPUs, in DCGM's order."""
        return list(self._models)

    def facts(self) -> dict[str, dict[str, Any]]:
        """Return what the GPUs are and whether they answer; who else uses them is not told."""
        facts: dict[str, dict[str, Any]] = {}
        for uuid, model in self._models.items():
            facts[uuid] = {"uuid": uuid, "model": model, "share": 1.0, "lost": self._lost.get(uuid, "")}
            if uuid in self._memory:
                facts[uuid]["memory_bytes"] = self._memory[uuid]
        return facts

    def sample(self) -> list[float]:
        """Return the newest values; they are NaN while no host engine answers."""
        reasons: dict[str, str] = {}
        found = self._read(reasons)
        self.missing = dict(self.never)
        values: list[float] = []
        for uuid in self._models:
            of_device = found.get(uuid, {})
            for metric in self.given:
                value = of_device.get(metric, NAN)
                if value != value:
                    self.missing.setdefault(metric, reasons.get(metric, "DCGM: no value yet"))
                values.append(value)
        return values

    def close(self) -> None:
        """Disconnect."""
        dcgm, self._dcgm, self._reader = self._dcgm, None, None
        if dcgm is not None:
            dcgm.close()

    def _open(self) -> None:
        self._dcgm = Dcgm(self._address, self._library)
        there = {uuid: (number, model) for number, (uuid, model) in self._dcgm.devices().items() if uuid}
        if not self._models:
            wanted = self.wanted
            if wanted is None:
                seen, reason = look(self._nvml_library)
                if seen is None:
                    raise SourceUnavailable(
                        f"DCGM shows all GPUs of the node, and which are the job's is not known: {reason}"
                    )
                wanted = [gpu.uuid for gpu in seen.devices]
            found, absent = chosen(wanted, list(there))
            if not found:
                raise SourceUnavailable(f"DCGM has none of the job's GPUs ({', '.join(absent) or 'none'})")
            self.remarks = [
                f"{uuid} was given to the job and is not measured: DCGM does not show it" for uuid in absent
            ]
            self._models = {uuid: there[uuid][1] for uuid in found}
        elif any(uuid not in there for uuid in self._models):
            raise SourceUnavailable("DCGM does not show all GPUs of the job any more")
        numbers = [there[uuid][0] for uuid in self._models]
        fields = [*_FIELDS, _REASONS]
        refused = self._dcgm.watch(numbers, fields, self.interval_s)
        self.never.update({_FIELDS[field][0]: f"DCGM: {words}" for field, words in refused.items() if field in _FIELDS})
        self._reader = DcgmReader(self._dcgm, numbers, [field for field in fields if field not in refused])

    def _read(self, reasons: dict[str, str]) -> dict[str, dict[str, float]]:
        """Return values by UUID and metric; a reason for each that is missing on some GPU."""
        reasons.update({metric: reason for metric, reason in self.never.items() if metric not in self.given})
        reader = self._reader or self._again(reasons)
        if reader is None or self._dcgm is None:
            return {}
        code = reader.refresh()
        if code != SUCCESS:
            self._fail(reasons, f"DCGM: {self._dcgm.words(code)}")
            return {}
        found: dict[str, dict[str, float]] = {}
        now_s = time.time()
        for at, uuid in enumerate(self._models):
            found[uuid] = {}
            self._lost.pop(uuid, None)
            for field, value in zip(reader.fields, reader.values(at)):
                self._take(uuid, field, value, now_s, found[uuid], reasons)
            if "gpu_memory_total_bytes" in found[uuid]:
                self._memory[uuid] = found[uuid]["gpu_memory_total_bytes"]
        return found

    def _again(self, reasons: dict[str, str]) -> Optional[DcgmReader]:
        """Connect again, now and then, after the host engine went away."""
        now_s = time.monotonic()
        if now_s >= self._retry_at:
            self._retry_at = now_s + _RETRY_S
            try:
                self._open()
                self.note("DCGM's host engine answers again")
                return self._reader
            except SourceUnavailable as error:
                self._fail(reasons, str(error))
        reasons.update(
            {metric: "DCGM: the host engine does not answer" for metric in self.given if metric not in reasons}
        )
        return None

    def _fail(self, reasons: dict[str, str], words: str) -> None:
        if self._dcgm is not None and self._models:
            self.note(words)
        self.close()
        self._retry_at = time.monotonic() + _RETRY_S
        reasons.update(dict.fromkeys(self.given, words))

    def _take(
        self, uuid: str, field: int, value: Value, now_s: float, found: dict[str, float], reasons: dict[str, str]
    ) -> None:
        """Keep one field's value under the names of its metrics."""
        names = list(_THROTTLE) if field == _REASONS else [_FIELDS[field][0]]
        if value.code in GONE:
            self._lost[uuid] = value.reason
        number, reason = value.number, value.reason
        if number is not None and now_s - value.time_s > max(10.0, 3 * self.interval_s):
            number, reason = None, f"DCGM: the host engine read it {now_s - value.time_s:.0f} s ago"
        if number is None:
            reasons.update({name: f"{uuid}: {reason}" if len(self._models) > 1 else reason for name in names})
            return
        if field == _REASONS:
            found.update({name: float(bool(int(number) & bits)) for name, bits in _THROTTLE.items()})
            return
        scaled = number * _FIELDS[field][1]
        if scaled < 0 or (names[0].endswith("_ratio") and scaled > _MOST):
            reasons[names[0]] = f"DCGM said {number:g}, which cannot be"
            return
        found[names[0]] = min(1.0, scaled) if names[0].endswith("_ratio") else scaled
