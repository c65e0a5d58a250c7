"""What a scoring says. `score = 100 x time x breadth x depth` holds exactly, for the job and for every part of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cordee.core.findings import Finding
from cordee.systems.score.trace.model import ScoredDevice, ScoredJob

if TYPE_CHECKING:
    import numpy as np

SCHEMA = "cordee.score/1"
# Rules give a window one of these; the order is that of codes, not that in which rules are tried.
CLASSES = (
    "checkpoint",
    "input",
    "idle",
    "transfer",
    "communication",
    "memory",
    "compute",
    "launch",
    "latency",
    "mixed",
    "hang",
    "contention",
)
UNKNOWN = "unknown"  # a window without the samples that a rule needs


@dataclass(frozen=True)
class ScoreShares:
    """The score of some devices over some time, and what it is made of.

    Attributes:
        score: 0-100; None when nothing was measured.
        time: mean of the time in use (0-1). breadth: SMs (or cores) at work while in use (0-1). depth: how close those came to
            the roof of compute or memory (0-1). All three None without samples.
        coverage: measured device-seconds of those that were allocated (0-1).
        device_seconds: measured.
    """

    score: float | None
    time: float | None
    breadth: float | None
    depth: float | None
    coverage: float
    device_seconds: float


@dataclass(frozen=True)
class ScorePart:
    """The score of a device, a node or a rank; `classes` are shares (0-1) of its measured time."""

    key: str
    shares: ScoreShares
    classes: dict[str, float]
    means: dict[str, float]
    device: ScoredDevice | None = None


@dataclass(frozen=True)
class ScoreWindows:
    """The run cut into windows.

    Attributes:
        starts: float64 [window], UTC epoch seconds; each is `length_s` long.
        classes: int8 [window, device]: index into `CLASSES`, -1 unknown.
        features: float32 [window, device] by the name that rules use; NaN where not measured.
    """

    starts: np.ndarray
    length_s: float
    classes: np.ndarray
    features: dict[str, np.ndarray]


@dataclass(frozen=True)
class Diagnosis:
    """One class: its share of the measured time, what showed it, and what to do.

    Attributes:
        evidence: sentences with window, metric, value and where; `where` says the same of the longest stretch for programs:
            `start`, `end` (UTC epoch seconds), `device`, `node`, `ranks`, `values` by feature; empty for unknown windows.
        advice: what to change, most promising first.
        gain: by which factor the job could get faster at best if this class vanished (Amdahl); None: nothing would get faster, or
            it cannot be said.
    """

    name: str
    share: float
    title: str
    evidence: tuple[str, ...]
    advice: tuple[str, ...]
    gain: float | None = None
    where: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Caps:
    """What counts as full: the shares that a microbenchmark reaches, by model, and where that was measured.

    Attributes:
        peak_flops: bf16 FLOP/s of the tensor cores; MFU is over this.
        links: bytes/s of one direction by `pcie`, `c2c`, `nvlink`.
    """

    model: str
    pipe: dict[str, float]
    dram: float
    origin: str
    measured: bool
    peak_flops: float | None = None
    peak_bytes_per_second: float | None = None
    sms: int | None = None
    links: dict[str, float] = field(default_factory=dict)


@dataclass
class Saturation:
    """Everything that a scoring says.

    Attributes:
        balance: mean of the devices' scores over the greatest (0-1); None with one device or none.
        clock_ratio: SM clock over its maximum while in use (0-1); None when not measured.
        confidence: 0-1, how far the score can be trusted; `confidence_reasons` say what lowers it.
        assumed: of time, breadth and depth those that could not be measured and count as 1: the score is then an upper bound.
        energy_joules: of the devices; None when not measured.
        mfu: achieved over peak FLOP/s; `goodput_ratio`: share of time that counted. None where the application logged too little.
        rates: what the application logged, per second: `tokens_per_s`, `flops_per_s`, ...
    """

    job: ScoredJob
    kind: str
    source: str
    cadence_s: float
    seconds: float
    shares: ScoreShares
    devices: list[ScorePart]
    nodes: list[ScorePart]
    ranks: list[ScorePart]
    windows: ScoreWindows
    diagnosis: list[Diagnosis]
    flags: list[Finding]
    caps: list[Caps]
    balance: float | None = None
    clock_ratio: float | None = None
    confidence: float = 0.0
    confidence_reasons: list[str] = field(default_factory=list)
    assumed: tuple[str, ...] = ()
    energy_joules: float | None = None
    mfu: float | None = None
    goodput_ratio: float | None = None
    rates: dict[str, float] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
