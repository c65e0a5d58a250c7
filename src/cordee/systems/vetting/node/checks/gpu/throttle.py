"""Does something hold a GPU's clocks down?"""

from __future__ import annotations

from typing import Any

from cordee.machine.gpus.faults import SLOWED_DOWN, throttle_faults
from cordee.machine.gpus.model import Gpu, GpuSource
from cordee.systems.vetting.node.checks._base import Context, Result
from cordee.systems.vetting.node.checks.gpu._base import DEVICES, EXPECTED, GpuCheck, GpuFault, not_told


class ThrottleCheck(GpuCheck):
    """Reads why the clocks are low: by hardware or for want of power it fails, for heat by the driver it warns."""

    name = "gpu.throttle"
    title = "Does something hold a GPU's clocks down?"
    parts = ("throttle", "heat")
    parameters = (EXPECTED, DEVICES)

    def judge(self, gpus: list[Gpu], source: GpuSource, parameters: dict[str, Any], context: Context) -> Result:
        findings = []
        for gpu in gpus:
            if gpu.throttle_reasons is None:
                findings.append(not_told(gpu, "throttle_reasons"))
            findings += [GpuFault(gpu, *fault) for fault in throttle_faults(gpu)]
        slowed = [gpu for gpu in gpus if set(SLOWED_DOWN) & set(gpu.throttle_reasons or ())]
        return self.conclude(
            findings,
            gpus,
            f"nothing holds down the clocks of {len(gpus)} GPUs",
            ("throttle_reasons", "clock_sm_mhz", "temperature_c", "power_w", "power_limit_w"),
            value=len(slowed),
            unit="GPUs slowed down",
            threshold=0,
        )
