"""Is a GPU too hot?"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from cordee.machine.gpus.model import Gpu, GpuSource
from cordee.systems.vetting.node.checks._base import Comparison, Context, Parameter, Result
from cordee.systems.vetting.node.checks.gpu._base import DEVICES, EXPECTED, GpuCheck, GpuFault, not_told

# A driver that gives less gives something else, such as a distance from its limit.
_LEAST_SLOWDOWN_C = 60


class TemperatureCheck(GpuCheck):
    """Compares the hottest GPU with `max_c`, and over all nodes with the median plus `margin_c`.

    A GPU whose own slowdown temperature is lower than `max_c` fails there.
    """

    name = "gpu.temperature"
    title = "Is a GPU too hot?"
    parts = ("heat",)
    parameters = (
        Parameter("max_c", "number", "temperature that is too hot", default=85, unit="°C"),
        Parameter("margin_c", "number", "how much hotter than the nodes' median", default=15, unit="K"),
        EXPECTED,
        DEVICES,
    )

    def judge(self, gpus: list[Gpu], source: GpuSource, parameters: dict[str, Any], context: Context) -> Result:
        findings, told = [], []
        for gpu in gpus:
            if gpu.temperature_c is None:
                findings.append(not_told(gpu, "temperature_c"))
                continue
            told.append(gpu.temperature_c)
            own = gpu.slowdown_temperature_c or 0
            limit = min(parameters["max_c"], own if own >= _LEAST_SLOWDOWN_C else parameters["max_c"])
            if gpu.temperature_c >= limit:
                why = "" if limit == parameters["max_c"] else ", where it slows itself down"
                findings.append(GpuFault(gpu, "fail", f"{gpu.temperature_c} °C; too hot from {limit:g} °C{why}"))
        hottest = max(told, default=None)
        compare = [asdict(Comparison("high", margin=parameters["margin_c"]))] if told else []
        return self.conclude(
            findings,
            gpus,
            f"at most {hottest} °C on {len(gpus)} GPUs",
            (
                "temperature_c",
                "memory_temperature_c",
                "slowdown_temperature_c",
                "power_w",
                "power_limit_w",
                "clock_sm_mhz",
            ),
            value=hottest,
            unit="°C",
            threshold=parameters["max_c"],
            reference={"kind": "absolute", "value": parameters["max_c"], "n": len(told)},
            compare=compare,
        )
