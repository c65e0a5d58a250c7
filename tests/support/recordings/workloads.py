"""Recordings of made workloads with the structure of real ones: a start, steps, noise, quantisation, gaps, GPUs that differ.

What they must be told as is known. They are marked as synthetic everywhere and are no measurements.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from cordee.systems.score.trace.model import HostSamples, LoggedTotals, ScoreTrace
from support.recordings.recording import STARTED_AT, MadeNode, made_node, write_recording
from support.recordings.scenarios import SCENARIOS, Levels, Scenario, StepPhase

if TYPE_CHECKING:
    import numpy as np

_GPU_RATIOS = ("graphics", "sm", "occupancy", "tensor", "tensor_hmma", "fp64", "fp32", "fp16", "dram")
_LINKS = {
    "pcie_in": "gpu_pcie_receive_bytes_per_second",
    "pcie_out": "gpu_pcie_transmit_bytes_per_second",
    "nvlink": "gpu_nvlink_transmit_bytes_per_second",
}
_BACKGROUND = {"pcie_in": 3e8, "pcie_out": 1e8, "nvlink": 0.0, "write": 2e4, "read": 1e5}
_MEMORY_BYTES = 80e9
_CORES = 16.0
_MOST = {"cores": _CORES, "thread": 1.0, "pressure_io": 1.0, "pressure_cpu": 1.0}


@dataclass(frozen=True)
class MadeNoise:
    """How far a made recording is from its levels.

    Attributes:
        level: standard deviation of what fluctuates (0-1), correlated from sample to sample by `memory`.
        devices: standard deviation of what differs between GPUs.
        step: ratios are multiples of it.
        gaps: share of samples that are missing, in runs of about three.
        start_s: seconds in which the program starts: GPUs rest and one thread works.
        variety: standard deviation, relative, of the levels themselves: no two programs of a kind are alike.
    """

    level: float = 0.04
    memory: float = 0.7
    devices: float = 0.01
    step: float = 0.001
    gaps: float = 0.02
    start_s: float = 9.0
    variety: float = 0.08


QUIET = MadeNoise(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


@dataclass(frozen=True)
class Made:
    """A made recording: its folder, and what is right from `began` to `ended`, UTC epoch seconds.

    Attributes:
        right: the class, then others that would not be wrong.
    """

    folder: Path
    right: tuple[str, ...]
    began: float
    ended: float


def scenario(name: str) -> Scenario:
    """Return a scenario by name."""
    return next(one for one in SCENARIOS if one.name == name)


def write_scenario(
    of: Scenario,
    folder: Path,
    *,
    seed: int = 0,
    seconds: float = 180.0,
    cadence_s: float = 1.0,
    noise: MadeNoise | None = None,
) -> Made:
    """Write the recording of one scenario on one node; the same seed gives the same samples."""
    how = MadeNoise() if noise is None else noise
    node = made_samples(of, seed=seed, samples=round(seconds / cadence_s), cadence_s=cadence_s, noise=how)
    write_recording(folder, [node], cadence_s=cadence_s)
    return Made(folder, of.right, STARTED_AT + how.start_s, STARTED_AT + seconds)


def write_course(
    parts: list[Scenario],
    folder: Path,
    *,
    seed: int = 0,
    seconds_each: float = 120.0,
    cadence_s: float = 1.0,
    noise: MadeNoise | None = None,
) -> list[Made]:
    """Write one recording in which scenarios follow each other on the same GPUs; return what is right when."""
    import numpy as np

    how = MadeNoise() if noise is None else noise
    samples = round(seconds_each / cadence_s)
    gpus = max(of.gpus for of in parts)
    nodes = [
        made_samples(of, seed=seed + at, samples=samples, cadence_s=cadence_s, noise=how, gpus=gpus, starts=at == 0)
        for at, of in enumerate(parts)
    ]
    whole = nodes[0]
    for table in ("gpu", "rank", "node_values"):
        metrics = getattr(whole, table)
        setattr(
            whole, table, {name: np.concatenate([getattr(node, table)[name] for node in nodes]) for name in metrics}
        )
    write_recording(folder, [whole], cadence_s=cadence_s)
    begins = [STARTED_AT + at * seconds_each for at in range(len(parts))]
    return [
        Made(folder, of.right, begin + (how.start_s if at == 0 else 0.0), begin + seconds_each)
        for at, (of, begin) in enumerate(zip(parts, begins, strict=True))
    ]


def made_samples(
    of: Scenario,
    *,
    seed: int,
    samples: int,
    cadence_s: float,
    noise: MadeNoise,
    gpus: int | None = None,
    starts: bool = True,
) -> MadeNode:
    """Return a node with the samples of a scenario."""
    import numpy as np

    count = gpus or of.gpus
    chance = np.random.default_rng([seed, zlib.crc32(of.name.encode())])
    of = varied(of, chance, noise.variety)
    node = made_node(0, count, memory_bytes=_MEMORY_BYTES, cores_per_rank=int(_CORES))
    at_work = np.ones((samples, count)) if not starts else _after_start(samples, count, cadence_s, noise)
    mixes = _mixes(of, samples, count, cadence_s, chance)
    activity = 1.0 + noise.level * _correlated(chance, samples, count, noise.memory)
    activity *= 1.0 + noise.devices * chance.standard_normal(count)
    gpu = {name: _around(_level(of, mixes, name) * at_work, activity, chance, noise) for name in _GPU_RATIOS}
    _keep_order(gpu)
    node.gpu = {f"gpu_{name}_ratio": _rounded(values, noise.step) for name, values in gpu.items()}
    node.gpu["gpu_utilization_ratio"] = _rounded(np.minimum(1.0, node.gpu["gpu_graphics_ratio"] * 1.02), 0.01)
    for name, metric in _LINKS.items():
        node.gpu[metric] = (_level(of, mixes, name) * at_work + _BACKGROUND[name]) * np.maximum(activity, 0.0)
    node.gpu["gpu_nvlink_receive_bytes_per_second"] = node.gpu[_LINKS["nvlink"]] * 0.98
    node.gpu.update(_slow_values(of, node.gpu, chance, samples, count))
    _host(of, node, mixes, at_work, activity)
    _drop(node, chance, noise.gaps)
    if of.waits_logged:
        _log_waits(of, node, samples * cadence_s, noise.start_s if starts else 0.0)
    return node


def varied(of: Scenario, chance: np.random.Generator, variety: float) -> Scenario:
    """Return another program of the same kind: levels and shares of phases differ a little, ratios stay below 1."""
    import math

    def other(level: float, most: float) -> float:
        return min(most, level * math.exp(variety * chance.standard_normal()))

    phases = []
    for phase in of.phases:
        gpu = {
            name: level if level >= 1.0 and name in _GPU_RATIOS else other(level, 1.0 if level <= 1.0 else math.inf)
            for name, level in phase.gpu.items()
        }
        host = {name: other(level, _MOST.get(name, math.inf)) for name, level in phase.host.items()}
        phases.append(StepPhase(other(phase.share, 1.0), gpu, {**host, "processes": phase.host["processes"]}))
    whole = sum(phase.share for phase in phases)
    return replace(of, phases=tuple(replace(phase, share=phase.share / whole) for phase in phases))


def _mixes(of: Scenario, samples: int, gpus: int, cadence_s: float, chance: np.random.Generator) -> np.ndarray:
    """Return the share [phase, sample, gpu] of each sample's time that is in each phase of the step."""
    import numpy as np

    edges = np.arange(samples + 1) * cadence_s / of.step_s + chance.random()
    shares = np.array([phase.share for phase in of.phases])
    mixes = []
    for gpu in range(gpus):
        slow = of.straggler if gpu == gpus - 1 else 1.0
        own = shares.copy()
        own[0] = min(1.0, own[0] / slow)
        own[1:] *= (1.0 - own[0]) / max(1e-9, own[1:].sum())
        begins = np.cumsum(own) - own
        steps, within = np.floor(edges), edges - np.floor(edges)
        spent = steps * own[:, None] + np.clip(within - begins[:, None], 0.0, own[:, None])
        mixes.append(np.diff(spent, axis=1) * of.step_s / cadence_s)
    return np.stack(mixes, axis=2)


def _level(of: Scenario, mixes: np.ndarray, name: str, side: str = "gpu") -> np.ndarray:
    import numpy as np

    levels = np.array([_of_phase(phase, side).get(name, 0.0) for phase in of.phases])
    mixed: np.ndarray = np.tensordot(levels, mixes, axes=1)
    return mixed


def _of_phase(phase: StepPhase, side: str) -> Levels:
    return phase.gpu if side == "gpu" else phase.host


def _around(levels: np.ndarray, activity: np.ndarray, chance: np.random.Generator, noise: MadeNoise) -> np.ndarray:
    """Return ratios around their levels: near 0 and 1 there is less room to fluctuate."""
    import numpy as np

    room = 4.0 * levels * (1.0 - levels)
    own = 0.3 * noise.level * chance.standard_normal(levels.shape)
    values: np.ndarray = np.clip(levels * (1.0 + (activity - 1.0 + own) * room), 0.0, 1.0)
    return values


def _keep_order(gpu: dict[str, np.ndarray]) -> None:
    """Keep what hardware keeps: no SM is busy while no kernel runs, no pipe while no SM is."""
    import numpy as np

    gpu["sm"] = np.minimum(gpu["sm"], gpu["graphics"])
    for name in ("occupancy", "tensor", "fp64", "fp32", "fp16"):
        gpu[name] = np.minimum(gpu[name], gpu["sm"])
    gpu["tensor_hmma"] = np.minimum(gpu["tensor_hmma"], gpu["tensor"])


def _rounded(values: np.ndarray, step: float) -> np.ndarray:
    import numpy as np

    return values if step <= 0 else np.round(values / step) * step


def _correlated(chance: np.random.Generator, samples: int, devices: int, memory: float) -> np.ndarray:
    """Return standard normal numbers [sample, device], each correlated with the one before by `memory`."""
    import numpy as np

    news = chance.standard_normal((samples, devices))
    for at in range(1, samples):
        news[at] = memory * news[at - 1] + np.sqrt(1.0 - memory**2) * news[at]
    return news


def _after_start(samples: int, gpus: int, cadence_s: float, noise: MadeNoise) -> np.ndarray:
    import numpy as np

    moments = (np.arange(samples) + 1) * cadence_s
    return np.repeat(np.clip((moments - noise.start_s) / cadence_s, 0.0, 1.0)[:, None], gpus, axis=1)


def _slow_values(
    of: Scenario, gpu: dict[str, np.ndarray], chance: np.random.Generator, samples: int, gpus: int
) -> dict[str, np.ndarray]:
    import numpy as np

    shape = (samples, gpus)
    load = 0.15 + 0.45 * gpu["gpu_sm_ratio"] + 0.3 * gpu["gpu_tensor_ratio"] + 0.1 * gpu["gpu_dram_ratio"]
    warm = np.cumsum(load, axis=0) / np.arange(1, samples + 1)[:, None]
    return {
        "gpu_memory_used_bytes": np.full(shape, of.memory_ratio * _MEMORY_BYTES),
        "gpu_memory_total_bytes": np.full(shape, _MEMORY_BYTES),
        "gpu_power_watts": 700.0 * np.clip(load + 0.01 * chance.standard_normal(shape), 0.1, 1.0),
        "gpu_clock_sm_hertz": np.where(gpu["gpu_graphics_ratio"] > 0.05, 1.83e9, 3.45e8),
        "gpu_clock_sm_max_hertz": np.full(shape, 1.98e9),
        "gpu_temperature_celsius": 30.0 + 40.0 * warm,
        "gpu_throttle_thermal_ratio": np.zeros(shape),
        "gpu_throttle_power_ratio": np.zeros(shape),
        "gpu_processes": np.ones(shape),
    }


def _host(of: Scenario, node: MadeNode, mixes: np.ndarray, at_work: np.ndarray, activity: np.ndarray) -> None:
    import numpy as np

    def host(name: str) -> np.ndarray:
        values: np.ndarray = _level(of, mixes, name, "host") * at_work
        return values

    around = np.clip(activity, 0.5, 1.5)
    starting: np.ndarray = 1.0 - at_work
    cores: np.ndarray = np.minimum(host("cores") * around, _CORES) + starting
    node.rank = {
        "cpu_cores_ratio": cores,
        "cpu_share_cores": np.full(cores.shape, _CORES),
        "memory_rss_bytes": np.full(cores.shape, 9e9),
        "io_read_bytes_per_second": (host("read") + _BACKGROUND["read"]) * around,
        "io_write_bytes_per_second": (host("write") + _BACKGROUND["write"]) * around,
        "processes": np.maximum(1.0, np.round(_level(of, mixes, "processes", "host"))),
        "thread_busiest_ratio": np.clip(
            np.minimum(host("thread") * (1 + 0.2 * (around - 1)), 1.0) + starting, 0.0, 1.0
        ),
    }
    node.node_values = {
        "cpu_busy_ratio": cores.sum(axis=1) / (_CORES * cores.shape[1]),
        "memory_used_bytes": np.full(len(cores), 1e11),
        "memory_total_bytes": np.full(len(cores), 5e11),
        "pressure_cpu_ratio": host("pressure_cpu").mean(axis=1),
        "pressure_io_ratio": np.clip(host("pressure_io") * around, 0.0, 1.0).mean(axis=1),
        "pressure_memory_ratio": np.zeros(len(cores)),
        "network_receive_bytes_per_second": np.full(len(cores), 2e5),
        "network_transmit_bytes_per_second": np.full(len(cores), 2e5),
    }


def _drop(node: MadeNode, chance: np.random.Generator, share: float) -> None:
    """Leave out samples of the GPUs, all metrics of one at once."""
    import numpy as np

    if share <= 0:
        return
    samples, gpus = node.gpu["gpu_sm_ratio"].shape
    begins = chance.random((samples, gpus)) < share / 3
    gone = begins | np.roll(begins, 1, axis=0) | np.roll(begins, 2, axis=0)
    for values in node.gpu.values():
        values[gone] = np.nan


def _log_waits(of: Scenario, node: MadeNode, seconds: float, start_s: float) -> None:
    """Have each rank log, at each step, how long its GPU rested."""
    waits = of.step_s * sum(phase.share for phase in of.phases if not phase.gpu)
    steps = int((seconds - start_s) / of.step_s)
    events = [(start_s + (step + 1) * of.step_s, step, {"data_wait_s": waits}) for step in range(steps)]
    node.logged = {rank: list(events) for rank in node.ranks}


def cut(trace: ScoreTrace, start: float, stop: float) -> ScoreTrace:
    """Return the samples that were taken wholly between two moments, UTC epoch seconds."""
    inside = (trace.times - trace.cadence_s >= start) & (trace.times <= stop)

    def within(load: Callable[[str], np.ndarray | None]) -> Callable[[str], np.ndarray | None]:
        def load_cut(name: str) -> np.ndarray | None:
            values = load(name)
            return None if values is None else values[inside]

        return load_cut

    def around(of: HostSamples | None) -> HostSamples | None:
        return None if of is None else replace(of, load=within(of.load))

    logged = {}
    for name, of in trace.logged.items():
        kept = (of.times >= start) & (of.times <= stop)
        logged[name] = LoggedTotals(of.times[kept], of.values[kept])
    return replace(
        trace,
        job=replace(trace.job, started_at=start, ended_at=stop),
        times=trace.times[inside],
        load=within(trace.load),
        node=around(trace.node),
        rank=around(trace.rank),
        logged=logged,
    )
