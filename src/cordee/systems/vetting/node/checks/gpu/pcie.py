"""Is every GPU connected over all lanes of PCIe, and as fast as it can?"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Iterator

from cordee.machine.gpus.model import Gpu, GpuSource
from cordee.systems.vetting.node.checks._base import Comparison, Context, Parameter, Result
from cordee.systems.vetting.node.checks.gpu._base import DEVICES, EXPECTED, GpuCheck, GpuFault, not_told

_BUSY_RATIO = 0.1


class PcieCheck(GpuCheck):
    """Compares the width with the most that is possible, and the generation where that tells something.

    An idle GPU may lower its generation to save power: it fails below its highest only while it is busy, or below
    `min_generation` where that is given; else a node that differs from the others is warned of.
    """

    name = "gpu.pcie"
    title = "Is every GPU connected over all lanes of PCIe, and as fast as it can?"
    scope = "link"
    parts = ("pcie",)
    parameters = (
        Parameter("min_width", "count", "lanes that there must be; else as many as GPU and slot can", unit="lanes"),
        Parameter("min_generation", "count", "generation that there must be, even of an idle GPU"),
        EXPECTED,
        DEVICES,
    )

    def judge(self, gpus: list[Gpu], source: GpuSource, parameters: dict[str, Any], context: Context) -> Result:
        findings = [finding for gpu in gpus if not gpu.lost for finding in _faults(gpu, parameters)]
        widths = [gpu.pcie_width for gpu in gpus if gpu.pcie_width is not None]
        generations = [gpu.pcie_generation for gpu in gpus if gpu.pcie_generation is not None]
        facts = {"slowest_generation": min(generations)} if generations else {}
        compare = [asdict(Comparison("same", status="warn"))] if widths else []
        if generations:
            compare.append(asdict(Comparison("same", of="slowest_generation", status="warn")))
        narrow = min(widths, default=None)
        return self.conclude(
            findings,
            gpus,
            f"at least {narrow} lanes, generation {facts.get('slowest_generation', 'not told')} on {len(gpus)} GPUs",
            (
                "pcie_generation",
                "pcie_generation_max",
                "pcie_width",
                "pcie_width_max",
                "pcie_replays",
                "utilization_ratio",
            ),
            value=narrow,
            unit="lanes",
            threshold=parameters.get("min_width"),
            facts=facts,
            compare=compare,
        )


def _faults(gpu: Gpu, parameters: dict[str, Any]) -> Iterator[GpuFault]:
    width, generation = parameters.get("min_width") or gpu.pcie_width_max, parameters.get("min_generation")
    busy = (gpu.utilization_ratio or 0) >= _BUSY_RATIO
    if gpu.pcie_width is None:
        yield not_told(gpu, "pcie_width")
    elif width is not None and gpu.pcie_width < width:
        yield GpuFault(gpu, "fail", f"PCIe width {gpu.pcie_width} of {width} lanes")
    if generation is None and busy:
        generation = gpu.pcie_generation_max
    if generation is not None and gpu.pcie_generation is None:
        yield not_told(gpu, "pcie_generation")
    elif generation is not None and gpu.pcie_generation is not None and gpu.pcie_generation < generation:
        state = f"while it is busy ({gpu.utilization_ratio:.0%})" if busy else "(idle)"
        yield GpuFault(gpu, "fail", f"PCIe generation {gpu.pcie_generation} of {generation} {state}")
