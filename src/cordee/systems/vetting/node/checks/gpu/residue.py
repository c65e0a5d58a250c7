"""Is a GPU still in use by somebody else, or its memory not given back?"""

from __future__ import annotations

from typing import Any, Iterator

from cordee.machine.gpus.model import Gpu, GpuProcess, GpuSource
from cordee.machine.processes.owner import belongs_to_job, process_name
from cordee.systems.vetting.node.checks._base import Context, Parameter, Result
from cordee.systems.vetting.node.checks.gpu._base import DEVICES, EXPECTED, GpuCheck, GpuFault, not_told

# Services that belong to a node and hold no memory worth mentioning.
_SERVICES = (
    "nvidia-persistenced",
    "nv-hostengine",
    "dcgm-exporter",
    "nvidia-cuda-mps-server",
    "nvidia-cuda-mps-control",
)


class ResidueCheck(GpuCheck):
    """Looks for used memory and for processes that are not the job's own, nor services of the node.

    A GPU that is shared out by MIG is not judged: others may use their parts.
    """

    name = "gpu.residue"
    title = "Is a GPU still in use by somebody else, or its memory not given back?"
    parts = ("memory", "processes")
    parameters = (
        Parameter(
            "max_used_ratio", "ratio", "largest share of memory that is used, without the job's own", default=0.02
        ),
        Parameter("allow", "texts", "names of processes that may be there, besides NVIDIA's services"),
        EXPECTED,
        DEVICES,
    )

    def judge(self, gpus: list[Gpu], source: GpuSource, parameters: dict[str, Any], context: Context) -> Result:
        shared = [gpu for gpu in gpus if gpu.mig]
        if len(shared) == len(gpus):
            return self.result("skip", f"{', '.join(map(str, gpus))}: shared out by MIG; others may use their parts")
        allowed = {*_SERVICES, *(parameters.get("allow") or ())}
        findings: list[GpuFault] = []
        ratios: list[float] = []
        foreign: list[dict[str, Any]] = []
        for gpu in gpus:
            if gpu.lost or gpu.mig:
                continue
            strangers, own_bytes = _divide(gpu, allowed, context)
            findings += _strangers(gpu, strangers, context)
            foreign += [
                {"device": gpu.index, "pid": one.pid, "name": process_name(one.pid, context.root)} for one in strangers
            ]
            if gpu.memory_used_bytes is None or not gpu.memory_total_bytes:
                findings.append(not_told(gpu, "memory_used_bytes"))
                continue
            ratios.append(max(0, gpu.memory_used_bytes - own_bytes) / gpu.memory_total_bytes)
            if ratios[-1] > parameters["max_used_ratio"]:
                used = (
                    f"{ratios[-1]:.1%} of its memory ({(gpu.memory_used_bytes - own_bytes) / 2**20:.0f} MiB) is in use"
                )
                why = "" if strangers else ", though nobody is seen to hold it"
                findings.append(GpuFault(gpu, "fail", f"{used}{why}; at most {parameters['max_used_ratio']:.1%}"))
        most = max(ratios, default=None)
        return self.conclude(
            findings,
            gpus,
            f"at most {most or 0:.1%} of the memory of {len(gpus)} GPUs is in use, by nobody else",
            ("memory_total_bytes", "memory_used_bytes"),
            value=None if most is None else round(most, 4),
            unit="ratio",
            threshold=parameters["max_used_ratio"],
            facts={"processes": foreign},
        )


def _divide(gpu: Gpu, allowed: set[str], context: Context) -> tuple[list[GpuProcess], int]:
    """Return the processes that have no business here, and the bytes that the job itself holds."""
    strangers, own_bytes = [], 0
    for process in gpu.processes or ():
        if belongs_to_job(process.pid, context.env, context.root):
            own_bytes += process.used_bytes or 0
        elif process_name(process.pid, context.root) not in allowed:
            strangers.append(process)
    return strangers, own_bytes


def _strangers(gpu: Gpu, strangers: list[GpuProcess], context: Context) -> Iterator[GpuFault]:
    if gpu.processes is None:
        yield not_told(gpu, "processes")
    for process in strangers:
        size = "" if process.used_bytes is None else f" with {process.used_bytes / 2**20:.0f} MiB"
        name = process_name(process.pid, context.root) or "not seen from here"
        kind = "graphics process" if process.graphics else "process"
        text = f"{kind} {process.pid} ({name}){size} is not of this job"
        yield GpuFault(gpu, "warn" if process.graphics else "fail", text)
