"""Are all GPUs there, of the right kind?"""

from __future__ import annotations

import subprocess
import time
from dataclasses import asdict
from typing import Any, Iterator, Optional

from cordee.machine.gpus.model import Gpu, GpuSource
from cordee.systems.vetting.node.checks._base import Comparison, Context, Parameter, Result, find_command
from cordee.systems.vetting.node.checks.gpu._base import (
    DEVICES,
    EXPECTED,
    GpuCheck,
    GpuFault,
    choose,
    expected_by_slurm,
    not_told,
    open_source,
    read,
)

_SMI_PATIENCE_S = 5.0


class GpuInventoryCheck(GpuCheck):
    """Compares number, model and memory of the GPUs with what is expected, else with the other nodes.

    How many are expected is `gpus_expected`, else what Slurm gave the job. Also asks nvidia-smi, as others will.
    """

    name = "gpu.inventory"
    title = "Are all GPUs there, of the right kind?"
    parameters = (
        EXPECTED,
        Parameter("model", "text", "what the model's name must contain, such as H100"),
        Parameter("min_memory_bytes", "size", "least memory of each GPU", unit="bytes"),
        Parameter(
            "nvidia_smi", "boolean", "whether nvidia-smi must answer; without a word it warns, false: it is not asked"
        ),
        DEVICES,
    )

    def run(self, parameters: dict[str, Any], context: Context) -> Result:
        if parameters.get("gpus_expected") == 0:
            return self.result("skip", "no GPU is expected on this node")
        smi = NvidiaSmi(context) if parameters.get("nvidia_smi") is not False else None
        source = open_source()
        gpus = choose(read(source, ("memory",)), parameters, context)
        findings = list(self._count(gpus, source, parameters, context))
        findings += [finding for gpu in gpus if not gpu.lost for finding in _faults(gpu, parameters)]
        facts: dict[str, Any] = {}
        if smi is not None and source.vendor == "NVIDIA":
            fault = smi.fault()
            facts["nvidia_smi"] = fault or "answers"
            if fault is not None:
                findings.append(GpuFault(None, "fail" if parameters.get("nvidia_smi") else "warn", fault))
        return self._conclude(findings, gpus, source, facts, parameters, context)

    def _count(
        self, gpus: list[Gpu], source: GpuSource, parameters: dict[str, Any], context: Context
    ) -> Iterator[GpuFault]:
        asked, given = parameters.get("gpus_expected"), expected_by_slurm(context)
        expected = asked if asked is not None else given
        if expected is None and not gpus:
            yield GpuFault(None, "unknown", f"the {source.vendor} driver shows no GPU to this job", "absent")
        elif expected is not None and len(gpus) < expected:
            found = ", ".join(str(gpu.index) for gpu in gpus)
            by = "" if asked is not None else " by Slurm"
            yield GpuFault(
                None, "fail", f"{len(gpus)} GPUs, expected {expected}{by}" + (f"; there: {found}" if found else "")
            )
        elif asked is not None and len(gpus) > asked:
            yield GpuFault(None, "warn", f"{len(gpus)} GPUs, expected {asked}")

    def _conclude(
        self,
        findings: list[GpuFault],
        gpus: list[Gpu],
        source: GpuSource,
        facts: dict[str, Any],
        parameters: dict[str, Any],
        context: Context,
    ) -> Result:
        models = sorted({_kind(gpu) for gpu in gpus if gpu.name})
        facts.update({"vendor": source.vendor, "count": len(gpus), "model": ", ".join(models)})
        facts.update({"driver_version": source.driver_version, "library_version": source.library_version})
        compare = [asdict(Comparison("same", of="model"))] if models and not parameters.get("model") else []
        expected = parameters.get("gpus_expected")
        threshold = expected if expected is not None else expected_by_slurm(context)
        if threshold is None and gpus:
            compare.append(asdict(Comparison("same")))
        return self.conclude(
            findings,
            gpus,
            f"{len(gpus)} GPUs: {', '.join(models) or 'model not told'}, driver {source.driver_version}",
            ("name", "memory_total_bytes", "mig", "recovery_action"),
            value=len(gpus),
            unit="GPUs",
            threshold=threshold,
            facts=facts,
            compare=compare,
        )


def _kind(gpu: Gpu) -> str:
    size = "" if gpu.memory_total_bytes is None else f" with {gpu.memory_total_bytes / 2**30:.0f} GiB"
    return f"{gpu.name}{size}"


def _faults(gpu: Gpu, parameters: dict[str, Any]) -> Iterator[GpuFault]:
    model, least = parameters.get("model"), parameters.get("min_memory_bytes")
    if model and gpu.name is None:
        yield not_told(gpu, "name")
    elif model and gpu.name is not None and model.lower() not in gpu.name.lower():
        yield GpuFault(gpu, "fail", f"model {gpu.name}, expected {model}")
    if least and gpu.memory_total_bytes is None:
        yield not_told(gpu, "memory_total_bytes")
    elif least and gpu.memory_total_bytes is not None and gpu.memory_total_bytes < least:
        text = f"{gpu.memory_total_bytes / 2**30:.1f} GiB of memory, expected at least {least / 2**30:.1f}"
        yield GpuFault(gpu, "fail", text)
    if gpu.recovery_action not in (None, "none"):
        yield GpuFault(gpu, "fail", f"the driver asks to repair it: {gpu.recovery_action}")


class NvidiaSmi:
    """nvidia-smi, asked while NVML is; it may hang, which is a fault of its own and keeps nothing else."""

    def __init__(self, context: Context) -> None:
        self._until = time.monotonic() + min(_SMI_PATIENCE_S, context.deadline_s / 2)
        self._process: Optional[subprocess.Popen[bytes]] = None
        path, self._reason = find_command("nvidia-smi", context.env, context.workdir)
        if path is None:
            return
        try:
            self._process = subprocess.Popen(
                [path, "-L"],
                env=context.env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
        except OSError as error:
            self._reason = f"cannot be started: {error.strerror}"

    def fault(self) -> Optional[str]:
        """Return what is wrong with it; waits for it within its time. None: it answered."""
        if self._process is None:
            return f"nvidia-smi {self._reason}"
        started = time.monotonic()
        try:
            output, _ = self._process.communicate(timeout=max(0.1, self._until - started))
        except subprocess.TimeoutExpired:
            self._process.kill()
            return f"nvidia-smi (process {self._process.pid}) did not answer in time"
        if self._process.returncode:
            words = " ".join(output.decode(errors="replace").split())[:300]
            return f"nvidia-smi ended with {self._process.returncode}: {words}"
        return None
