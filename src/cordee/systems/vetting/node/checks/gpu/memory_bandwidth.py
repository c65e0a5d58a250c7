"""Is the memory of the GPUs, or of the CPU, as fast as that of its peers?"""

from __future__ import annotations

from typing import Any

from cordee.systems.vetting.node.checks._base import Parameter, Result
from cordee.systems.vetting.node.checks.compute import DEVICE, SECONDS, ProgramCheck, min_ratio

_GPU_SECONDS, _CPU_SECONDS = 1.0, 0.4


class MemoryBandwidthCheck(ProgramCheck):
    """Adds arrays in each GPU's memory (a = b + 2 c, as the triad of the STREAM benchmark), on all GPUs at once.

    On the CPU it copies with the C library on up to four threads. A GPU's speed is that of its median window, a CPU's of its best.
    """

    name = "gpu.memory_bandwidth"
    title = "Is the memory of the GPUs, or of the CPU, as fast as that of its peers?"
    without_gpu = "Copies within the host's memory."
    program = "bandwidth"
    ratios = (0.90, 0.70)
    parameters = (
        DEVICE,
        Parameter("size", "size", "bytes of one array; when not given 1 GiB on a GPU, 256 MiB on a CPU, or what fits"),
        SECONDS,
        Parameter("min_bandwidth", "bandwidth", "slowest memory of a device that is accepted", unit="bytes/s"),
        min_ratio(*ratios),
    )

    def request(self, parameters: dict[str, Any], on_gpu: bool) -> dict[str, Any]:
        return {
            "engine": "torch" if on_gpu else "copy",
            "device": "gpu" if on_gpu else "cpu",
            "size_bytes": parameters.get("size"),
            "seconds": parameters.get("seconds") or (_GPU_SECONDS if on_gpu else _CPU_SECONDS),
        }

    def judge(self, done: dict[str, Any], parameters: dict[str, Any], on_gpu: bool) -> Result:
        lanes = [_lane(lane) for lane in done["lanes"]]
        speeds = [lane["bytes_per_s" if on_gpu else "best_bytes_per_s"] for lane in lanes]
        result = self.rated(lanes, speeds, "bytes/s", parameters.get("min_bandwidth"), parameters, on_gpu)
        result.facts |= {"source": done["engine"], "size_bytes": done["size_bytes"], "threads": done["threads"]}
        return result


def _lane(lane: dict[str, Any]) -> dict[str, Any]:
    kept = {key: lane[key] for key in ("device", "uuid", "model", "windows", "wrong")}
    return {
        **kept,
        "bytes_per_s": lane["median"],
        "best_bytes_per_s": lane["best"],
        "worst_bytes_per_s": lane["worst"],
    }
