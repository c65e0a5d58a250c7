"""Is the memory of a GPU sound?"""

from __future__ import annotations

from typing import Any, Iterator

from cordee.machine.gpus.faults import WARN_CORRECTED, WARN_RETIRED_PAGES, memory_faults
from cordee.machine.gpus.model import Gpu, GpuSource
from cordee.systems.vetting.node.checks._base import Context, Parameter, Result
from cordee.systems.vetting.node.checks.gpu._base import DEVICES, EXPECTED, GpuCheck, GpuFault, not_told

_VALUES = ("ecc_uncorrectable", "remap_failure", "retired_pages")
_FACTS = (
    "ecc_enabled",
    "ecc_corrected",
    "ecc_uncorrectable",
    "ecc_aggregate_corrected",
    "ecc_aggregate_uncorrectable",
    "sram_threshold_exceeded",
    "remapped_rows_corrected",
    "remapped_rows_uncorrectable",
    "remap_pending",
    "remap_failure",
    "remap_banks",
    "retired_pages",
    "retired_pending",
)


class EccCheck(GpuCheck):
    """Fails for errors that were not corrected since the driver was loaded, and for repairs that failed or wait for a reset.

    Warns for many corrected errors, for banks without spare rows, for many retired pages and where ECC is switched off.
    """

    name = "gpu.ecc"
    title = "Is the memory of a GPU sound?"
    parts = ("ecc",)
    parameters = (
        Parameter("max_uncorrectable", "count", "uncorrectable errors since the driver was loaded", default=0),
        Parameter(
            "warn_corrected",
            "count",
            "corrected errors since the driver was loaded, from which it warns",
            default=WARN_CORRECTED,
        ),
        Parameter(
            "warn_retired_pages",
            "count",
            "retired pages from which it warns; there is room for 64",
            default=WARN_RETIRED_PAGES,
        ),
        EXPECTED,
        DEVICES,
    )

    def judge(self, gpus: list[Gpu], source: GpuSource, parameters: dict[str, Any], context: Context) -> Result:
        without = [gpu for gpu in gpus if not gpu.lost and _has_no_ecc(gpu)]
        if len(without) == len(gpus):
            return self.result("skip", f"{', '.join(map(str, gpus))}: no ECC, the driver says")
        findings: list[GpuFault] = []
        for gpu in gpus:
            findings += _faults(gpu, parameters)
            if gpu.ecc_uncorrectable is None and gpu.ecc_enabled is not False and gpu not in without:
                findings.append(not_told(gpu, "ecc_uncorrectable"))
        count = sum(gpu.ecc_uncorrectable or 0 for gpu in gpus)
        return self.conclude(
            findings,
            gpus,
            f"no uncorrectable errors, no repairs failed or pending on {len(gpus)} GPUs",
            _FACTS,
            value=count,
            unit="uncorrectable errors",
            threshold=parameters["max_uncorrectable"],
        )


def _has_no_ecc(gpu: Gpu) -> bool:
    """Return whether the driver says that there is no such thing, rather than refusing or failing to say."""
    told = gpu.ecc_enabled is not None or any(getattr(gpu, name) is not None for name in _VALUES)
    return not told and all(name in gpu.missing and gpu.missing[name].cause == "absent" for name in _VALUES)


def _faults(gpu: Gpu, parameters: dict[str, Any]) -> Iterator[GpuFault]:
    limits = {name: parameters[name] for name in ("max_uncorrectable", "warn_corrected", "warn_retired_pages")}
    for fault in memory_faults(gpu, **limits):
        yield GpuFault(gpu, *fault)
    if gpu.ecc_enabled is False:
        yield GpuFault(gpu, "warn", "ECC is switched off: errors of its memory go unnoticed")
