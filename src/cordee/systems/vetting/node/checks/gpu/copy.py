"""Do data reach each GPU from the host, and come back, as fast as on its peers?"""

from __future__ import annotations

from typing import Any

from cordee.systems.vetting.node.checks._base import Parameter, Result
from cordee.systems.vetting.node.checks.compute import DEVICE, SECONDS, ProgramCheck, min_ratio

_SECONDS = 0.6


class CopyCheck(ProgramCheck):
    """Copies pinned memory to each GPU and back, one GPU after another, and compares what comes back byte by byte.

    The value is the slowest direction of the slowest GPU.
    """

    name = "gpu.copy"
    title = "Do data reach each GPU from the host, and come back, as fast as on its peers?"
    without_gpu = (
        "There is nothing to copy to: it is skipped (`device: cpu` copies within the host's memory with torch)."
    )
    program = "copy"
    ratios = (0.90, 0.70)
    parameters = (
        DEVICE,
        Parameter("size", "size", "bytes of one copy", default=256 << 20),
        SECONDS,
        Parameter("min_bandwidth", "bandwidth", "slowest copy that is accepted", unit="bytes/s"),
        min_ratio(*ratios),
    )

    def on_cpu(self, parameters: dict[str, Any]) -> bool:
        return parameters.get("device") == "cpu"

    def request(self, parameters: dict[str, Any], on_gpu: bool) -> dict[str, Any]:
        return {
            "device": "gpu" if on_gpu else "cpu",
            "size_bytes": parameters["size"],
            "seconds": parameters.get("seconds") or _SECONDS,
        }

    def judge(self, done: dict[str, Any], parameters: dict[str, Any], on_gpu: bool) -> Result:
        lanes = [
            {
                **{key: lane[key] for key in ("device", "uuid", "model", "windows", "wrong")},
                "to_device_bytes_per_s": lane["to_device"],
                "to_host_bytes_per_s": lane["to_host"],
            }
            for lane in done["lanes"]
        ]
        speeds = [min(lane["to_device_bytes_per_s"], lane["to_host_bytes_per_s"]) for lane in lanes]
        return self.rated(lanes, speeds, "bytes/s", parameters.get("min_bandwidth"), parameters, on_gpu)
