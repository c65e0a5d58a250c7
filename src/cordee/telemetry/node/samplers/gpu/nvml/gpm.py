"""NVML GPM: activity of SMs and pipes from the driver's counters, on Hopper and newer; no daemon, no root."""

from __future__ import annotations

import time
from typing import Optional, Sequence

from cordee.telemetry.node.samplers.gpu._base import Roots
from cordee.telemetry.node.samplers.gpu.nvml.basic import NvmlSampler
from cordee.telemetry.node.samplers.gpu.nvml.devices import SampledDevice
from cordee.telemetry.node.samplers.gpu.nvml.gpm_samples import LEAST_S, Gpm, names_of
from cordee.telemetry.node.samplers.gpu.nvml.library import LIBRARY, Nvml

_UNKNOWN = "GPM does not tell it on this driver and these GPUs"
_COARSE = "GPM's finer counters replace it"


class NvmlGpmSource(NvmlSampler):
    """GPM's means over the interval with NVML's basic values; GPUs without GPM next to others give the latter only."""

    name = "nvml-gpm"
    coarse = False
    least_interval_s = LEAST_S

    def __init__(
        self,
        wanted: Optional[Sequence[str]] = None,
        interval_s: float = 1.0,
        own: Optional[Roots] = None,
        library: str = LIBRARY,
    ) -> None:
        super().__init__(wanted, interval_s, own, library)
        self._gpm: dict[str, Gpm] = {}
        self._refused: dict[str, str] = {}

    def _open_devices(self, nvml: Nvml) -> Optional[str]:
        """Take two samples of each device and ask for every metric by itself; it takes a tenth of a second."""
        refused = self._refused
        for device in self._devices:
            if device.lost is None:
                self._begin(nvml, device, refused)
        if not self._gpm:
            return next(iter(refused.values()), "no GPU answers")
        time.sleep(LEAST_S)
        given: list[list[str]] = []
        for uuid, gpm in self._gpm.items():
            reason = gpm.take(time.monotonic())
            names = [] if reason else gpm.learn()
            given.append(names)
            if not names:
                refused[uuid] = reason or next(iter(gpm.missing.values()), "GPM gives no metric")
        if not any(given):
            return next(iter(refused.values()))
        self.remarks += [f"{uuid}: {reason}; it has basic values only" for uuid, reason in refused.items()]
        basic, reasons = self._open_values(nvml)
        for gpm in self._gpm.values():
            reasons.update(gpm.missing)
        self.never = {**reasons, "gpu_utilization_ratio": _COARSE, "gpu_memory_busy_ratio": _COARSE}
        self.give([*basic, *names_of(given)], _UNKNOWN)
        return None

    def _begin(self, nvml: Nvml, device: SampledDevice, refused: dict[str, str]) -> None:
        gpm = Gpm(nvml, device)
        reason = gpm.open() or gpm.take(time.monotonic())
        if reason is None:
            self._gpm[device.uuid] = gpm
        else:
            gpm.close()
            refused[device.uuid] = reason

    def _close_devices(self) -> None:
        super()._close_devices()
        for gpm in self._gpm.values():
            gpm.close()
        self._gpm.clear()

    def _read(self, device: SampledDevice, now_s: float, reasons: dict[str, str]) -> dict[str, float]:
        found = super()._read(device, now_s, reasons)
        gpm = self._gpm.get(device.uuid)
        if device.lost is not None:
            return found
        if gpm is None:
            reasons.update(
                {metric: self._refused.get(device.uuid, _UNKNOWN) for metric in self.given if metric not in found}
            )
            return found
        found.update(gpm.read(now_s, reasons))
        device.lost = gpm.gone
        return found

    def _reopen(self, nvml: Nvml, device: SampledDevice) -> bool:
        if not super()._reopen(nvml, device):
            return False
        before = self._gpm.pop(device.uuid, None)
        if before is not None:
            before.close()
        self._begin(nvml, device, self._refused)
        return True
