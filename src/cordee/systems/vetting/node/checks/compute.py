"""What all checks share that run a program on the devices of a node and judge each device."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Optional

from cordee.core.units import format_size
from cordee.machine.gpus.presence import gpus_told_by
from cordee.systems.vetting.node.checks._base import CAUSES, CannotTest, Check, Comparison, Context, Parameter, Result
from cordee.systems.vetting.node.checks.program import ProgramOutcome, run_program

DEVICE = Parameter(
    "device",
    "text",
    "what to test; auto takes the GPUs where the node has any, else the CPU",
    default="auto",
    choices=("auto", "gpu", "cpu"),
)
SECONDS = Parameter("seconds", "duration", "how long to measure", unit="s")


def min_ratio(on_gpu: float, on_cpu: float) -> Parameter:
    """Return the parameter of a peer threshold; a CPU that others share is not held to what a GPU is."""
    what = f"least share of the peers' 75th percentile; when not given {on_gpu:.2f} on GPUs and {on_cpu:.2f} on CPUs"
    return Parameter("min_ratio", "ratio", what)


class ProgramCheck(Check):
    """A check that runs one program; a subclass asks and judges.

    Attributes:
        program: its name in `cordee.systems.vetting.node.checks.programs`.
        ratios: the default of `min_ratio` on GPUs and on CPUs.
    """

    program = ""
    alone = True
    scope = "device"
    deadline_s = 60.0
    ratios = (0.9, 0.7)

    def run(self, parameters: dict[str, Any], context: Context) -> Result:
        on_gpu = wants_gpu(parameters.get("device", "auto"), context)
        if not on_gpu and not self.on_cpu(parameters):
            return self.result("skip", f"no GPU that the ranks may see: {self.without_gpu}")
        outcome = run_program(self.program, self.request(parameters, on_gpu), context)
        if outcome.done is None:
            return self.broken(outcome)
        result = self.judge(outcome.done, parameters, on_gpu)
        result.facts["python"] = outcome.python
        return result

    def on_cpu(self, parameters: dict[str, Any]) -> bool:
        """Return whether there is something to test on a node without GPUs."""
        return True

    def request(self, parameters: dict[str, Any], on_gpu: bool) -> dict[str, Any]:
        """Return what the program is asked."""
        raise NotImplementedError

    def judge(self, done: dict[str, Any], parameters: dict[str, Any], on_gpu: bool) -> Result:
        """Return the result of a program that ended well."""
        raise NotImplementedError

    def broken(self, outcome: ProgramOutcome) -> Result:
        """Return the result of a program that did not end well."""
        cause = outcome.cause if outcome.cause is None or outcome.cause in CAUSES else "error"
        facts: dict[str, Any] = {"python": outcome.python}
        if outcome.stack:
            facts["stack"] = outcome.stack
        return self.result(outcome.status, outcome.text, cause=cause, facts=facts)

    def rated(
        self,
        lanes: list[dict[str, Any]],
        speeds: list[float],
        unit: str,
        minimum: Optional[float],
        parameters: dict[str, Any],
        on_gpu: bool,
    ) -> Result:
        """Return the result for one speed per device: the slowest counts, wrong results fail whatever the speed."""
        shown = [f"{label(lane)} {show(speed, unit)}" for lane, speed in zip(lanes, speeds)]
        slowest = min(speeds)
        faults = [f"{label(lane)}: {wrong(lane)}" for lane in lanes if lane.get("wrong")]
        if minimum is not None:
            slow = [(lane, speed) for lane, speed in zip(lanes, speeds) if speed < minimum]
            faults += [
                f"{label(lane)}: {show(speed, unit)}, at least {show(minimum, unit)} are asked for"
                for lane, speed in slow
            ]
        result = self.result("fail" if faults else "pass", "; ".join(faults) or ", ".join(shown))
        result.value, result.unit, result.threshold = slowest, unit, minimum
        if minimum is not None:
            result.reference = {"kind": "absolute", "value": minimum, "n": None}
        if on_gpu:
            result.facts["devices"] = lanes
        else:
            result.facts["cpu"] = lanes[0] if len(lanes) == 1 else lanes
        if not faults:
            ratio = parameters.get("min_ratio") or self.ratios[0 if on_gpu else 1]
            result.compare = [asdict(Comparison("low", ratio=ratio))]
        return result


def wants_gpu(device: str, context: Context) -> bool:
    """Return whether a check is to run on GPUs.

    Raises:
        CannotTest: `gpu` on a node without any.
    """
    if device == "cpu":
        return False
    told = gpus_told_by(context.root, context.env)
    if told is None and device == "gpu":
        raise CannotTest(
            "this node has no GPU that the ranks may see: neither /dev/nvidia* nor /dev/kfd nor NVML", "absent"
        )
    return told is not None


def label(lane: dict[str, Any]) -> str:
    """Return a device of a program's answer for a person."""
    if lane["device"] is None:
        return str(lane["model"])
    return f"GPU {lane['device']} ({lane['uuid'] or lane['model']})"


def show(speed: float, unit: str) -> str:
    """Return a speed for a person."""
    return f"{format_size(speed)}/s" if unit == "bytes/s" else f"{speed:.3g} {unit}"


def wrong(lane: dict[str, Any]) -> str:
    """Return how many results of a device are wrong, for a person."""
    if "products" in lane:
        return f"{lane['wrong']} of {lane['products']} products have wrong bits (checksum {lane['checksum']})"
    return f"{lane['wrong']} results are wrong"
