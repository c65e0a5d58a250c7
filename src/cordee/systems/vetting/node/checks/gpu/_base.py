"""What all checks of GPUs share: which GPUs are judged, and how findings about devices become one result."""

from __future__ import annotations

import os
from typing import Any, Iterable, NamedTuple, Optional

from cordee.machine.gpus.driver import open_gpus
from cordee.machine.gpus.model import Gpu, GpuSource, GpusUnreadable, visible
from cordee.machine.gpus.presence import listed
from cordee.systems.vetting.node.checks._base import CannotTest, Check, Context, Parameter, Result

EXPECTED = Parameter(
    "gpus_expected", "count", "how many GPUs the job gets on a node; 0: it needs none, and nothing is tested"
)
DEVICES = Parameter(
    "devices",
    "text",
    "`visible`: those that CUDA_VISIBLE_DEVICES and the like leave to the job; `all`: all that the driver shows",
    default="visible",
    choices=("visible", "all"),
)
_WORST = ("fail", "unknown", "warn", "pass", "skip")


class GpuFault(NamedTuple):
    """A fault of one GPU (None: of the node): a status of results, words without the GPU's name, and a cause if unknown."""

    gpu: Optional[Gpu]
    status: str
    text: str
    cause: Optional[str] = None


class GpuCheck(Check):
    """A check of every GPU that the job gets; one that is lost fails in each of them.

    Attributes:
        parts: what is read, of `cordee.machine.gpus.model.PARTS`.
    """

    scope = "device"
    parts: tuple[str, ...] = ()
    without_gpu = "Cannot be tested, or is skipped where `gpus_expected` is 0."

    def run(self, parameters: dict[str, Any], context: Context) -> Result:
        if parameters.get("gpus_expected") == 0:
            return self.result("skip", "no GPU is expected on this node")
        source = open_source()
        gpus = choose(read(source, self.parts), parameters, context)
        if not gpus:
            raise CannotTest(nothing_visible(context), "absent")
        return self.judge(gpus, source, parameters, context)

    def judge(self, gpus: list[Gpu], source: GpuSource, parameters: dict[str, Any], context: Context) -> Result:
        """Return the result for these GPUs, which may be lost; `source` can be asked again."""
        raise NotImplementedError

    def conclude(
        self,
        findings: list[GpuFault],
        gpus: list[Gpu],
        healthy: str,
        values: Iterable[str] = (),
        facts: Optional[dict[str, Any]] = None,
        **measured: Any,
    ) -> Result:
        """Return one result for all GPUs; its evidence names each that is at fault.

        Args:
            findings: those of GPUs that answer; lost ones are added.
            gpus: all that are judged.
            healthy: what to say of GPUs without a fault.
            values: attributes of the GPUs that go into `facts["devices"]`.
            facts: more of them.
            measured: of the result.
        """
        lost = [GpuFault(gpu, "fail", f"does not answer: {gpu.lost}") for gpu in gpus if gpu.lost]
        faulty = lost + [finding for finding in findings if not (finding.gpu and finding.gpu.lost)]
        status = min((finding.status for finding in faulty), key=_WORST.index, default="pass")
        faulty.sort(key=_gravity)
        evidence = "; ".join(_words(finding) for finding in faulty) or healthy
        cause = next((finding.cause for finding in faulty if finding.status == "unknown"), None)
        names = list(values)
        all_facts = {**(facts or {}), "devices": [_facts(gpu, names, faulty) for gpu in gpus]}
        return self.result(status, evidence, cause=cause if status == "unknown" else None, facts=all_facts, **measured)


def open_source() -> GpuSource:
    """Open the driver's library.

    Raises:
        CannotTest: it is missing, closed or broken.
    """
    try:
        return open_gpus()
    except GpusUnreadable as refusal:
        raise CannotTest(str(refusal), refusal.cause) from None


def read(source: GpuSource, parts: Iterable[str] = ()) -> list[Gpu]:
    """Return the GPUs of the node.

    Raises:
        CannotTest: the library does not tell them.
    """
    try:
        return source.read(parts)
    except GpusUnreadable as refusal:
        raise CannotTest(str(refusal), refusal.cause) from None


def choose(gpus: list[Gpu], parameters: dict[str, Any], context: Context) -> list[Gpu]:
    """Return the GPUs that are judged."""
    return gpus if parameters.get("devices") == "all" else visible(gpus, context.env)


def nothing_visible(context: Context) -> str:
    """Return why no GPU is judged, for a person."""
    given = listed(context.env)
    if given is not None:
        return f"no GPU: {given.variable}={given.text!r} leaves none to the job"
    return "the driver shows no GPU on this node"


def expected_by_slurm(context: Context) -> Optional[int]:
    """Return how many GPUs the job was given on this node, as Slurm says; None: it does not."""
    text = context.env.get("SLURM_GPUS_ON_NODE") or os.environ.get("SLURM_GPUS_ON_NODE") or ""
    return int(text) if text.isdigit() else None


def not_told(gpu: Gpu, name: str) -> GpuFault:
    """Return that a value which the check needs is missing, and why."""
    missing = gpu.missing.get(name)
    if missing is None:
        return GpuFault(gpu, "unknown", f"{name} is not told", "absent")
    return GpuFault(gpu, "unknown", f"{name} is not told: {missing.text}", missing.cause)


def _gravity(finding: GpuFault) -> tuple[int, int]:
    return _WORST.index(finding.status), -1 if finding.gpu is None else finding.gpu.index


def _words(finding: GpuFault) -> str:
    return finding.text if finding.gpu is None else f"{finding.gpu}: {finding.text}"


def _facts(gpu: Gpu, names: list[str], faulty: list[GpuFault]) -> dict[str, Any]:
    found: dict[str, Any] = {"device": gpu.index, "uuid": gpu.uuid, "pci_bus_id": gpu.pci_bus_id}
    found.update({name: getattr(gpu, name) for name in names if getattr(gpu, name) is not None})
    texts = [finding.text for finding in faulty if finding.gpu is gpu]
    if texts:
        found["fault"] = "; ".join(texts)
    if gpu.lost:
        found["lost"] = gpu.lost
    return found
