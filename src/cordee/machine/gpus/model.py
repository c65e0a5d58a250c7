"""The GPUs of a node, whoever made them: what their driver says, value by value."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Iterable, Mapping, NamedTuple, Optional

from cordee.machine.gpus.presence import listed

_ADDRESS = re.compile(r"([0-9a-fA-F]{1,8}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2})")


class GpusUnreadable(Exception):
    """The library of the driver cannot be asked at all.

    Args:
        text: what stands in the way and what to do, for a person.
        cause: `absent` (no library, no driver), `closed` (no permission) or `error`.
    """

    def __init__(self, text: str, cause: str) -> None:
        super().__init__(text)
        self.cause = cause


class MissingValue(NamedTuple):
    """Why a value is None, in the library's words, and whether it is `absent`, `closed` or an `error`."""

    text: str
    cause: str


class GpuProcess(NamedTuple):
    """A process that holds memory of a GPU; None: its size is not told."""

    pid: int
    used_bytes: Optional[int]
    graphics: bool = False


class GpuLink(NamedTuple):
    """One link between GPUs: whether it is up, and its error counters since the driver was loaded, by name."""

    link: int
    active: bool
    errors: dict[str, int]


@dataclass
class Gpu:
    """One GPU; a value that was not asked for or not told is None, in the latter case with a reason in `missing`.

    Attributes:
        index: in the order of the library, which is that of the PCI bus.
        lost: why the GPU as a whole does not answer, in the library's words.
        missing: why a value is None, by the name of the attribute.
        pci_bus_id: `0000:18:00`, without the function.
        memory_used_bytes: without what the driver keeps for itself, where the library tells them apart.
        throttle_reasons: why the clocks are not at their highest: names of `THROTTLE_REASONS`.
        ecc_corrected, ecc_uncorrectable: since the driver was loaded; `ecc_aggregate_...`: in the GPU's life.
        remap_banks: banks of memory by how many spare rows they have: max, high, partial, low, none.
        recovery_action: what the driver asks for: `reset`, `reboot`, `drain P2P`, `drain and reset` or `none`.
        fabric_fault: what keeps the GPU from the links' fabric; empty: nothing.
    """

    index: int
    lost: Optional[str] = None
    missing: dict[str, MissingValue] = field(default_factory=dict)
    uuid: Optional[str] = None
    name: Optional[str] = None
    pci_bus_id: Optional[str] = None
    mig: Optional[bool] = None
    recovery_action: Optional[str] = None
    memory_total_bytes: Optional[int] = None
    memory_used_bytes: Optional[int] = None
    processes: Optional[list[GpuProcess]] = None
    temperature_c: Optional[int] = None
    memory_temperature_c: Optional[int] = None
    slowdown_temperature_c: Optional[int] = None
    throttle_reasons: Optional[list[str]] = None
    clock_sm_mhz: Optional[int] = None
    power_w: Optional[float] = None
    power_limit_w: Optional[float] = None
    utilization_ratio: Optional[float] = None
    ecc_enabled: Optional[bool] = None
    ecc_corrected: Optional[int] = None
    ecc_uncorrectable: Optional[int] = None
    ecc_aggregate_corrected: Optional[int] = None
    ecc_aggregate_uncorrectable: Optional[int] = None
    sram_threshold_exceeded: Optional[bool] = None
    remapped_rows_corrected: Optional[int] = None
    remapped_rows_uncorrectable: Optional[int] = None
    remap_pending: Optional[bool] = None
    remap_failure: Optional[bool] = None
    remap_banks: Optional[dict[str, int]] = None
    retired_pages: Optional[int] = None
    retired_pending: Optional[bool] = None
    pcie_generation: Optional[int] = None
    pcie_generation_max: Optional[int] = None
    pcie_width: Optional[int] = None
    pcie_width_max: Optional[int] = None
    pcie_replays: Optional[int] = None
    links: Optional[list[GpuLink]] = None
    fabric_fault: Optional[str] = None

    def __str__(self) -> str:
        return f"GPU {self.index} ({self.uuid or self.pci_bus_id or 'UUID not told'})"


# What can be read together; `identity` always is.
PARTS = ("memory", "processes", "heat", "throttle", "ecc", "pcie", "links")
# Names of reasons for low clocks that are nobody's fault or somebody's; see `cordee.systems.vetting.node.checks.gpu.throttle`.
THROTTLE_REASONS = (
    "idle",
    "application clocks",
    "software power cap",
    "hardware slowdown",
    "sync boost",
    "software thermal",
    "hardware thermal",
    "power brake",
    "display clocks",
)


class GpuSource:
    """A driver's library, opened. Used by checks, each in a process that is killed when the library hangs.

    Attributes:
        vendor: `NVIDIA` or `AMD`.
        driver_version, library_version: None: not told.
    """

    vendor = ""
    driver_version: Optional[str] = None
    library_version: Optional[str] = None

    def read(self, parts: Iterable[str] = ()) -> list[Gpu]:
        """Return all GPUs that this process may see, with their identity and these of `PARTS`.

        Raises:
            GpusUnreadable: not even their number is told.
        """
        raise NotImplementedError

    def xids(self) -> list[tuple[str, int]]:
        """Return UUID and number of each XID since the last call, which must not wait; the first call only begins to listen."""
        return []


def gpu_document(gpu: Gpu) -> dict[str, Any]:
    """Return what is known of a GPU as JSON can hold it, without why the rest is not."""
    known = {name: value for name, value in vars(gpu).items() if value is not None}
    return {**known, "missing": {}}


def gpu_of(document: Mapping[str, Any]) -> Gpu:
    """Return the GPU that `gpu_document` has told."""
    gpu = Gpu(**document)
    gpu.links = None if gpu.links is None else [GpuLink(*link) for link in gpu.links]
    return gpu


def bus_id(text: str) -> Optional[str]:
    """Return the PCI address as `0000:18:00`, from any of `00000000:18:00.0`, `PCI:0000:18:00` and `0000:18:00.0`."""
    found = _ADDRESS.search(text)
    return None if found is None else f"{int(found[1], 16):04x}:{found[2]}:{found[3]}".lower()


def visible(gpus: list[Gpu], env: Mapping[str, str]) -> list[Gpu]:
    """Return those GPUs that the variables of CUDA or ROCm leave to the job; without such a variable, all.

    An index counts as the library does. As in CUDA, the list ends at the first entry that names no GPU. A part of a GPU
    (MIG) stands for all that the library shows.
    """
    given = listed(env)
    if given is None:
        return gpus
    chosen: list[Gpu] = []
    for entry in given.entries:
        if entry.startswith("MIG-"):
            return gpus
        found = [gpu for gpu in gpus if _names(entry, gpu)]
        if len(found) != 1:
            break
        chosen += [gpu for gpu in found if gpu not in chosen]
    return chosen


def _names(entry: str, gpu: Gpu) -> bool:
    if entry.isdigit():
        return int(entry) == gpu.index
    return entry.startswith("GPU-") and (gpu.uuid or "").startswith(entry)
