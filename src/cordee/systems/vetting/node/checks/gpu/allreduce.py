"""Do the GPUs of a node, or two of its processes, sum arrays together as fast as those of its peers?"""

from __future__ import annotations

from typing import Any

from cordee.systems.vetting.node.checks._base import Parameter, Result
from cordee.systems.vetting.node.checks.compute import DEVICE, SECONDS, ProgramCheck, min_ratio

_GPU_BYTES, _CPU_BYTES = 256 << 20, 4 << 20
_GPU_SECONDS, _CPU_SECONDS = 2.0, 0.4


class AllreduceCheck(ProgramCheck):
    """Sums one array over one process per GPU with NCCL (RCCL on AMD), as a training does with gradients.

    The value is the bus bandwidth of the slowest rank. Every element of the last sum is compared with what it must be.
    """

    name = "gpu.allreduce"
    title = "Do the GPUs of a node, or two of its processes, sum arrays together as fast as those of its peers?"
    without_gpu = "Two processes sum over sockets, or `ranks` processes with torch's Gloo (`engine: gloo`)."
    program = "allreduce"
    scope = "node"
    deadline_s = 90.0
    ratios = (0.88, 0.50)
    parameters = (
        DEVICE,
        Parameter(
            "engine",
            "text",
            "what carries the data; auto takes nccl with GPUs, else sockets",
            default="auto",
            choices=("auto", "nccl", "gloo", "sockets"),
        ),
        Parameter("payload", "size", "bytes to sum; when not given 256 MiB on GPUs, 4 MiB on a CPU"),
        Parameter("ranks", "count", "processes of gloo", default=2),
        SECONDS,
        Parameter("min_bandwidth", "bandwidth", "slowest bus bandwidth that is accepted", unit="bytes/s"),
        min_ratio(*ratios),
    )

    def request(self, parameters: dict[str, Any], on_gpu: bool) -> dict[str, Any]:
        engine = parameters.get("engine", "auto")
        if engine == "auto":
            engine = "nccl" if on_gpu else "sockets"
        on_gpu = engine == "nccl"
        return {
            "engine": engine,
            "ranks": max(2, parameters["ranks"]),
            "payload_bytes": parameters.get("payload") or (_GPU_BYTES if on_gpu else _CPU_BYTES),
            "seconds": parameters.get("seconds") or (_GPU_SECONDS if on_gpu else _CPU_SECONDS),
        }

    def judge(self, done: dict[str, Any], parameters: dict[str, Any], on_gpu: bool) -> Result:
        if not done["lanes"]:
            return self.result("skip", "the node has one GPU that the ranks may see: there is nothing to sum with")
        lanes = [
            {
                **{key: lane[key] for key in ("device", "uuid", "model", "windows", "wrong")},
                "bytes_per_s": lane["median"],
                "best_bytes_per_s": lane["best"],
            }
            for lane in done["lanes"]
        ]
        on_gpu = done["engine"] == "nccl"
        speeds = [lane["bytes_per_s" if on_gpu else "best_bytes_per_s"] for lane in lanes]
        result = self.rated(lanes, speeds, "bytes/s", parameters.get("min_bandwidth"), parameters, on_gpu)
        result.facts |= {"source": done["engine"], "ranks": done["ranks"], "payload_bytes": done["payload_bytes"]}
        return result
