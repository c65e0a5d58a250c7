"""What is wrong with a GPU by what its driver says: vetting asks before a job, and the watch of a running one by what has grown since."""

from __future__ import annotations

from typing import Iterator, NamedTuple

from cordee.machine.gpus.model import Gpu, GpuLink

WARN_CORRECTED, WARN_RETIRED_PAGES = 1000, 60
# Of the reasons for low clocks. Idleness, clocks that were set and the power limit are how a GPU is run, not faults.
SLOWED_DOWN = {
    "hardware slowdown": ("fail", "the hardware has slowed it down (heat, power or an external signal)"),
    "hardware thermal": ("fail", "the hardware has slowed it down for heat"),
    "power brake": ("fail", "its power supply has slowed it down"),
    "software thermal": ("warn", "the driver has slowed it down for heat"),
}


class WordedFault(NamedTuple):
    """`fail` or `warn`, and why."""

    status: str
    text: str


def memory_faults(
    gpu: Gpu,
    since: str = "since the driver was loaded",
    max_uncorrectable: int = 0,
    warn_corrected: int = WARN_CORRECTED,
    warn_retired_pages: int = WARN_RETIRED_PAGES,
) -> Iterator[WordedFault]:
    """Yield what is wrong with its memory; `since` when errors are counted."""
    uncorrectable, banks = gpu.ecc_uncorrectable or 0, gpu.remap_banks or {}
    if uncorrectable > max_uncorrectable:
        yield WordedFault("fail", f"{uncorrectable} uncorrectable ECC errors {since}")
    if gpu.remap_failure:
        yield WordedFault("fail", "row remapping failed: it must be replaced")
    if gpu.remap_pending:
        yield WordedFault("fail", "row remapping is pending: it must be reset")
    if gpu.retired_pending:
        yield WordedFault("fail", "page retirement is pending: it must be reset")
    if gpu.sram_threshold_exceeded:
        yield WordedFault("fail", "more uncorrectable errors of its SRAM than the driver allows: it must be replaced")
    if banks.get("none"):
        yield WordedFault("warn", f"{banks['none']} banks of its memory have no spare row left")
    if (gpu.retired_pages or 0) >= warn_retired_pages:
        yield WordedFault("warn", f"{gpu.retired_pages} pages of its memory are retired; there is room for 64")
    if (gpu.ecc_corrected or 0) >= warn_corrected:
        yield WordedFault("warn", f"{gpu.ecc_corrected} corrected ECC errors {since}")


def throttle_faults(gpu: Gpu) -> list[WordedFault]:
    """Return why its clocks are held down, where that is a fault: the graver one first."""
    found = []
    for wanted in ("fail", "warn"):
        told = [text for name, (status, text) in SLOWED_DOWN.items() if status == wanted and name in _reasons(gpu)]
        if told:
            found.append(WordedFault(wanted, "; ".join(told)))
    return found


def link_growth(link: GpuLink, before: dict[str, int]) -> dict[str, int]:
    """Return by how much the error counters of an NVLink have grown."""
    return {name: count - before[name] for name, count in link.errors.items() if name in before}


def _reasons(gpu: Gpu) -> list[str]:
    return gpu.throttle_reasons or []
