"""What is scored: the samples of a job's devices and of what surrounds them, wherever they came from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class ScoredDevice:
    """One thing that is scored: a GPU, an instance of one (MIG), or the job's cores on a node.

    Attributes:
        key: its name in the samples: a GPU's UUID, for cores the node.
        model: as the driver names it, empty when not told.
        ranks: global ranks that it belongs to; empty: not known.
        parent: the GPU that an instance is part of, else empty.
        share: which part of the GPU's SMs an instance has (0-1).
        shared: words on others who use it at the same time, empty when nobody is known to.
    """

    key: str
    node: str
    index: int = 0
    model: str = ""
    ranks: tuple[int, ...] = ()
    memory_bytes: float | None = None
    parent: str = ""
    share: float = 1.0
    shared: str = ""


@dataclass(frozen=True)
class ScoredJob:
    """What the samples are of.

    Attributes:
        name: for people: a run's or a recording's.
        job: the scheduler's id, empty outside of one.
        started_at, ended_at: UTC epoch seconds of the first rank's start and the last one's end (or of what was sampled last).
        state: running, finished, failed, cancelled or unknown.
        world_size: ranks; 0: not known.
        nodes: all nodes of the job, those without a sample too.
        allocated: devices that the job holds, sampled or not; None: not known, then those that were seen.
        productive_ratio: share of the time that was not lost to waiting, restarts and steps done again; None: not known.
    """

    name: str
    command: str = ""
    job: str = ""
    user: str = ""
    state: str = "unknown"
    exit_code: int | None = None
    started_at: float | None = None
    ended_at: float | None = None
    world_size: int = 0
    nodes: tuple[str, ...] = ()
    allocated: int | None = None
    productive_ratio: float | None = None


@dataclass(frozen=True)
class HostSamples:
    """Samples of nodes or ranks on the same clock as the devices'.

    Attributes:
        keys: node names, or global ranks as text.
        node_of: the node of each key.
        load: returns float32 [time, key] of a standard metric, None when nobody measured it.
    """

    keys: tuple[str, ...]
    node_of: Mapping[str, str]
    load: Callable[[str], np.ndarray | None]


@dataclass(frozen=True)
class LoggedTotals:
    """What all ranks logged together: a value per moment, summed over ranks."""

    times: np.ndarray
    values: np.ndarray


@dataclass
class ScoreTrace:
    """The samples of a job; values are loaded when asked for, so that 1,000 GPUs x 1 h fit into memory.

    Attributes:
        kind: `gpu`, or `cpu` where there was no GPU: the same identity with the caps of cores, labelled so.
        source: what measured the devices (`nvml-gpm`, `dcgm`, `nvml`, `amdsmi`, `replay`, `proc`, `perf`, ...).
        cadence_s: seconds between samples; `times` float64 [time] are UTC epoch seconds on that grid.
        load: returns float32 [time, device] of a standard metric, NaN = missing; None when nobody measured it.
        missing: why a metric was not measured, by name.
        logged: sums over ranks of what the application logged, by name: `flops`, `tokens` and others as they were named.
        remarks: sentences that belong under the score: a sampler that was killed, a clock that jumped, a node without samples.
        site_gpus: what the profile of the run's cluster says of GPUs, by its names, with the keys of caps.
    """

    job: ScoredJob
    kind: Literal["gpu", "cpu"]
    source: str
    cadence_s: float
    times: np.ndarray
    devices: list[ScoredDevice]
    load: Callable[[str], np.ndarray | None]
    node: HostSamples | None = None
    rank: HostSamples | None = None
    missing: dict[str, str] = field(default_factory=dict)
    logged: dict[str, LoggedTotals] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    site_gpus: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
