"""Do the GPUs, or the CPU, multiply matrices as fast as their peers, and is every bit right?"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from cordee.systems.vetting.node.checks._base import Comparison, Parameter, Result
from cordee.systems.vetting.node.checks.compute import DEVICE, SECONDS, ProgramCheck, min_ratio

_GPU_SECONDS, _CPU_SECONDS = 2.0, 0.5


class GemmCheck(ProgramCheck):
    """Multiplies matrices on all GPUs at once for `seconds`, in windows of 100 ms (20 ms on a CPU), and integer matrices between the windows.

    A GPU's speed is that of its median window: one that throttles or pauses is seen. A CPU's is that of its best window,
    since what others do on a shared machine makes only slower. Every integer product must have the checksum that follows from its
    factors without multiplying: a wrong bit fails its device, with or without peers.
    """

    name = "gpu.gemm"
    title = "Do the GPUs, or the CPU, multiply matrices as fast as their peers, and is every bit right?"
    without_gpu = "The same on the CPU, with numpy, or in plain Python where numpy is not there."
    program = "gemm"
    ratios = (0.93, 0.70)
    parameters = (
        DEVICE,
        Parameter(
            "engine",
            "text",
            "what multiplies; auto takes torch on GPUs, and numpy or, without it, python on CPUs",
            default="auto",
            choices=("auto", "torch", "numpy", "python"),
        ),
        Parameter(
            "dtype",
            "text",
            "type of the elements; when not given bf16 or fp16 on GPUs, fp64 with numpy, fp32 with torch on a CPU",
            choices=("bf16", "fp16", "fp32", "fp64"),
        ),
        Parameter("size", "count", "rows and columns; when not given by what fits into a quarter of the free memory"),
        SECONDS,
        Parameter("min_tflops", "number", "slowest speed of a device that is accepted", unit="TFLOP/s"),
        min_ratio(*ratios),
    )

    def request(self, parameters: dict[str, Any], on_gpu: bool) -> dict[str, Any]:
        return {
            "engine": "torch" if on_gpu else parameters.get("engine", "auto"),
            "device": "gpu" if on_gpu else "cpu",
            "dtype": parameters.get("dtype"),
            "size": parameters.get("size"),
            "seconds": parameters.get("seconds") or (_GPU_SECONDS if on_gpu else _CPU_SECONDS),
        }

    def judge(self, done: dict[str, Any], parameters: dict[str, Any], on_gpu: bool) -> Result:
        lanes = [_lane(lane) for lane in done["lanes"]]
        speeds = [lane["tflops" if on_gpu else "best_tflops"] for lane in lanes]
        result = self.rated(lanes, speeds, "TFLOP/s", parameters.get("min_tflops"), parameters, on_gpu)
        result.facts |= {"source": done["engine"], "dtype": done["dtype"], "size": done["size"]}
        # Products of one size are compared: every right one has the same checksum.
        key = f"checksum_{done['checked_size']}"
        sums = {lane["checksum"] for lane in lanes} - {done["expected"]}
        result.facts[key] = min(sums) if sums else done["expected"]
        result.compare.append(asdict(Comparison("same", of=key)))
        return result


def _lane(lane: dict[str, Any]) -> dict[str, Any]:
    kept = {key: lane[key] for key in ("device", "uuid", "model", "windows", "products", "wrong", "checksum")}
    return {
        **kept,
        "tflops": lane["median"] / 1e12,
        "best_tflops": lane["best"] / 1e12,
        "worst_tflops": lane["worst"] / 1e12,
    }
