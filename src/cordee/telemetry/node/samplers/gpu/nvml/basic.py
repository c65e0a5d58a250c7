"""NVML without performance counters: on every NVIDIA GPU, but it only tells that a kernel ran, not how much of the GPU."""

from __future__ import annotations

import time
from typing import Any, Optional, Sequence, Union

from cordee.telemetry.node.samplers._base import NAN
from cordee.telemetry.node.samplers.gpu._base import GpuMetricSource, Roots, SourceUnavailable
from cordee.telemetry.node.samplers.gpu._users import Sharing
from cordee.telemetry.node.samplers.gpu.nvml.devices import SampledDevice, find_again, select
from cordee.telemetry.node.samplers.gpu.nvml.library import LIBRARY, Nvml
from cordee.telemetry.node.samplers.gpu.nvml.values import Values

_RETRY_S = 5.0
_ALONE = "NVML's basic counters do not tell it: it takes GPM (Hopper or newer) or DCGM"


class NvmlSampler(GpuMetricSource):
    """NVML's basic values, for any NVIDIA GPU; coarse.

    Args:
        library: NVML's library; the others are those of `GpuMetricSource`.
    """

    name = "nvml"
    coarse = True

    def __init__(
        self,
        wanted: Optional[Sequence[str]] = None,
        interval_s: float = 1.0,
        own: Optional[Roots] = None,
        library: str = LIBRARY,
    ) -> None:
        super().__init__(wanted, interval_s, own)
        self._library = library
        self._nvml: Optional[Nvml] = None
        self._devices: list[SampledDevice] = []
        self._values: dict[str, Values] = {}
        self._retry_at: dict[str, float] = {}
        self._sharing = Sharing(own)

    def probe(self) -> Optional[str]:
        """Open NVML and find out what it gives; return why it cannot, or None."""
        try:
            self._nvml = Nvml(self._library)
            self._devices, self.remarks = select(self._nvml, self.wanted)
            refused = self._open_devices(self._nvml)
        except SourceUnavailable as error:
            refused = str(error)
        if refused is not None:
            self.close()
        return refused

    def devices(self) -> list[Union[str, int]]:
        """Return the UUIDs of GPUs and MIG instances, in the order of the PCI bus."""
        return [device.uuid for device in self._devices]

    def facts(self) -> dict[str, dict[str, Any]]:
        """Return what the devices are, whether they answer, and whether others use them too."""
        return {
            device.uuid: {**device.describe(), **self._sharing.facts(self._pids(device))} for device in self._devices
        }

    def sample(self) -> list[float]:
        """Return the values of each device; of one that is lost they are NaN until it is back."""
        missing = dict(self.never)
        values: list[float] = []
        for device in self._devices:
            reasons: dict[str, str] = {}
            found = self._sample_device(device, time.monotonic(), reasons)
            row = [found.get(metric, NAN) for metric in self.given]
            values += row
            if sum(row) != sum(row):
                self._explain(device, row, reasons, missing)
        self.missing = missing
        return values

    def close(self) -> None:
        """Give NVML back."""
        nvml, self._nvml = self._nvml, None
        if nvml is not None:
            self._close_devices()
            nvml.close()

    def _open_devices(self, nvml: Nvml) -> Optional[str]:
        """Settle what is given; return why it is nothing, or None."""
        found, self.never = self._open_values(nvml)
        self.give(found, _ALONE)
        return None if found else "NVML gives no value of any GPU"

    def _open_values(self, nvml: Nvml) -> tuple[list[str], dict[str, str]]:
        """Look at each device once; return the basic metrics that are given, and of others why not."""
        reasons: dict[str, str] = {}
        found: set[str] = set()
        for device in self._devices:
            if device.lost is None:
                values = self._values[device.uuid] = Values(nvml, device, self.coarse)
                self._read_values(device, time.monotonic(), reasons)
                found.update(metric for metric in values.readers if metric not in values.absent)
        return list(found), {metric: reason for metric, reason in reasons.items() if metric not in found}

    def _close_devices(self) -> None:
        self._values.clear()

    def _read(self, device: SampledDevice, now_s: float, reasons: dict[str, str]) -> dict[str, float]:
        """Return all values of a device that answers; `device.lost` says so when it does not any more."""
        return self._read_values(device, now_s, reasons)

    def _read_values(self, device: SampledDevice, now_s: float, reasons: dict[str, str]) -> dict[str, float]:
        values = self._values[device.uuid]
        found = values.read(now_s, reasons)
        device.lost = values.gone
        return found

    def _reopen(self, nvml: Nvml, device: SampledDevice) -> bool:
        """Begin again with a device that was lost; return whether it answers."""
        if not find_again(nvml, device):
            return False
        self._values[device.uuid] = Values(nvml, device, self.coarse)
        return True

    def _sample_device(self, device: SampledDevice, now_s: float, reasons: dict[str, str]) -> dict[str, float]:
        found: dict[str, float] = {}
        if device.lost is not None and now_s >= self._retry_at.get(device.uuid, 0.0) and self._nvml is not None:
            self._retry_at[device.uuid] = now_s + _RETRY_S
            if self._reopen(self._nvml, device):
                found = self._read(device, now_s, reasons)
                if device.lost is None:
                    self.note(f"{device.uuid} answers again")
        elif device.lost is None:
            found = self._read(device, now_s, reasons)
            if device.lost is not None:
                self._retry_at[device.uuid] = now_s + _RETRY_S
                self.note(f"{device.uuid} does not answer any more and is looked for: {device.lost}")
        if device.lost is not None:
            reasons.update(dict.fromkeys(self.given, device.lost))
            return {}
        return found

    def _explain(
        self, device: SampledDevice, row: list[float], reasons: dict[str, str], missing: dict[str, str]
    ) -> None:
        """Add why values of a device are NaN; with the device's name where there are others."""
        of = f"{device.uuid}: " if len(self._devices) > 1 else ""
        for metric, value in zip(self.given, row):
            if value != value:
                missing.setdefault(metric, of + reasons.get(metric, "not told"))

    def _pids(self, device: SampledDevice) -> list[int]:
        values = self._values.get(device.uuid)
        return [] if values is None or device.lost is not None else values.pids
