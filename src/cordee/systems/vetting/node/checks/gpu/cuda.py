"""Does a small computation on every GPU give the right result?"""

from __future__ import annotations

from typing import Any

from cordee.systems.vetting.node.checks._base import Parameter, Result
from cordee.systems.vetting.node.checks.compute import DEVICE, ProgramCheck, label
from cordee.systems.vetting.node.checks.program import ProgramOutcome


class CudaCheck(ProgramCheck):
    """Computes a x + y on every GPU and compares all elements with the host's own.

    A GPU that gives an error, or a driver that torch cannot use though it is built for it, fails. Libraries of `cuda_home` that do not load make it unknown.
    """

    name = "gpu.cuda"
    title = "Does a small computation on every GPU give the right result?"
    without_gpu = "Unknown; with `device: auto` it is skipped, with `device: cpu` the CPU computes."
    program = "saxpy"
    alone = False
    parameters = (
        Parameter(DEVICE.name, DEVICE.kind, "what to test", default="gpu", choices=DEVICE.choices),
        Parameter(
            "engine",
            "text",
            "what computes; auto takes torch or, without it, the CUDA driver's own library",
            default="auto",
            choices=("auto", "torch", "driver"),
        ),
        Parameter("count", "count", "elements", default=1 << 20),
        Parameter("cuda_home", "text", "a CUDA toolkit's folder: libcudart and libnvrtc below its lib64 must load"),
    )

    def on_cpu(self, parameters: dict[str, Any]) -> bool:
        return parameters.get("device") == "cpu"

    def request(self, parameters: dict[str, Any], on_gpu: bool) -> dict[str, Any]:
        asked = {name: parameters.get(name) for name in ("engine", "count", "cuda_home")}
        return {**asked, "device": "gpu" if on_gpu else "cpu"}

    def judge(self, done: dict[str, Any], parameters: dict[str, Any], on_gpu: bool) -> Result:
        lanes = done["lanes"]
        bad = [
            f"{label(lane)}: {lane['wrong']} of {done['count']} elements are wrong" for lane in lanes if lane["wrong"]
        ]
        evidence = "; ".join(bad) or f"{done['count']} elements right on {', '.join(map(label, lanes))}"
        result = self.result("fail" if bad else "pass", evidence, unit="wrong elements", threshold=0)
        result.value = max(lane["wrong"] for lane in lanes)
        result.facts = {"devices" if on_gpu else "cpu": lanes, "libraries": done["libraries"]}
        return result

    def broken(self, outcome: ProgramOutcome) -> Result:
        result = super().broken(outcome)
        if outcome.cause == "unusable":
            result.status, result.cause = "fail", None
        return result
