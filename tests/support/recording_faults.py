"""Recordings of what goes wrong, made on demand: each function writes one into a folder and returns it.

`FAULTS` lists those of an ordinary size by name. The jobs below them are alike: an H100's values in a training that computes
well for 120 s on 4 GPUs a node, so that what is odd about each is the fault alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from support.recordings.recording import STARTED_AT, MadeNode, gpu_uuid, made_node, write_recording

if TYPE_CHECKING:
    import numpy as np

SECONDS = 120
GPUS = 4
_LEVELS = {
    "gpu_graphics_ratio": 0.98,
    "gpu_sm_ratio": 0.92,
    "gpu_occupancy_ratio": 0.4,
    "gpu_tensor_ratio": 0.7,
    "gpu_fp64_ratio": 0.0,
    "gpu_fp32_ratio": 0.1,
    "gpu_fp16_ratio": 0.02,
    "gpu_dram_ratio": 0.4,
    "gpu_pcie_transmit_bytes_per_second": 2e8,
    "gpu_pcie_receive_bytes_per_second": 4e8,
    "gpu_nvlink_transmit_bytes_per_second": 3e10,
    "gpu_nvlink_receive_bytes_per_second": 3e10,
    "gpu_memory_used_bytes": 6e10,
    "gpu_memory_total_bytes": 8e10,
    "gpu_power_watts": 620.0,
    "gpu_clock_sm_hertz": 1.9e9,
    "gpu_clock_sm_max_hertz": 1.98e9,
    "gpu_temperature_celsius": 61.0,
    "gpu_throttle_thermal_ratio": 0.0,
    "gpu_throttle_power_ratio": 0.0,
}
_RANK = {
    "cpu_cores_ratio": 1.2,
    "cpu_share_cores": 16.0,
    "memory_rss_bytes": 8e9,
    "io_read_bytes_per_second": 1e7,
    "io_write_bytes_per_second": 1e4,
    "processes": 9.0,
    "thread_busiest_ratio": 0.6,
}
_NODE = {
    "cpu_busy_ratio": 0.08,
    "memory_used_bytes": 9e10,
    "memory_total_bytes": 5e11,
    "pressure_cpu_ratio": 0.0,
    "pressure_io_ratio": 0.01,
    "pressure_memory_ratio": 0.0,
}

Writer = Callable[["str | os.PathLike[str]"], Path]


def healthy(folder: str | os.PathLike[str], nodes: int = 1, seconds: int = SECONDS, cadence_s: float = 1.0) -> Path:
    """Write a job without a fault: `nodes` nodes of 4 GPUs that compute for `seconds`."""
    samples = round(seconds / cadence_s)
    return write_recording(folder, [_node(at, samples) for at in range(nodes)], cadence_s=cadence_s)


def aborted_job(folder: str | os.PathLike[str]) -> Path:
    """Write a job whose ranks were killed by signal 9 after 40 s; the sampler closed the recording."""
    node = _node(0, 40)
    node.exit_code, node.signal = None, 9
    return write_recording(folder, [node])


def killed_sampler(folder: str | os.PathLike[str]) -> Path:
    """Write a recording that its sampler never closed: nobody saw how the ranks ended."""
    node = _node(0, SECONDS)
    node.ended = False
    return write_recording(folder, [node])


def half_written(folder: str | os.PathLike[str]) -> Path:
    """Write a recording whose node died while writing: the block log ends inside a block, the sampler's document is empty."""
    killed_sampler(folder)
    for path in (Path(folder) / "telemetry").glob("blocks-*.log"):
        os.truncate(path, path.stat().st_size * 2 // 3)
    for path in (Path(folder) / "recorders").glob("*.json"):
        path.write_bytes(b"")
    return Path(folder)


def ranks_of_different_lengths(folder: str | os.PathLike[str]) -> Path:
    """Write two nodes of one step: the second starts 15 s later and ends 35 s earlier."""
    late = _node(1, SECONDS - 50)
    late.start_s = 15.0
    return write_recording(folder, [_node(0, SECONDS), late], job="4711", step="0")


def missing_node(folder: str | os.PathLike[str]) -> Path:
    """Write a step of 8 ranks on two nodes of which only the first one's sampler left anything."""
    return write_recording(folder, [_node(0, SECONDS)], job="4711", step="0", world_size=2 * GPUS)


def clock_going_back(folder: str | os.PathLike[str]) -> Path:
    """Write a node whose clock is set back by 30 s after 60 s of 120."""
    import numpy as np

    node = _node(0, SECONDS)
    seconds = np.arange(SECONDS, dtype=np.float64)
    node.times = STARTED_AT + np.where(seconds < 60, seconds, seconds - 30.0)
    return write_recording(folder, [node])


def mig(folder: str | os.PathLike[str]) -> Path:
    """Write a GPU cut into a busy instance of 60 and an idle one of 16 of its 132 SMs, each with a rank."""
    import numpy as np

    node = _node(0, SECONDS, gpus=2)
    parent = gpu_uuid(0, 99)
    shares, busy = (60 / 132, 16 / 132), np.array([1.0, 0.0])
    node.gpu = {name: of * busy if name.endswith("_ratio") else of for name, of in node.gpu.items()}
    node.gpus = {
        f"MIG-{at}-{uuid[4:]}": {**facts, "parent": parent, "share": share, "memory_bytes": 80e9 * share}
        for at, ((uuid, facts), share) in enumerate(zip(node.gpus.items(), shares, strict=True))
    }
    for rank, uuid in zip(node.ranks.values(), node.gpus, strict=True):
        rank["gpus"] = [uuid]
    return write_recording(folder, [node])


def shared_gpu(folder: str | os.PathLike[str]) -> Path:
    """Write a node on whose first GPU a process of another user holds memory."""
    node = _node(0, SECONDS)
    node.gpus[gpu_uuid(0, 0)]["shared"] = "process 31337 of another user holds 11 GB"
    return write_recording(folder, [node])


def lost_gpu(folder: str | os.PathLike[str]) -> Path:
    """Write a node whose last GPU falls off the bus after 60 s: NaN from then on, with the reason."""
    import numpy as np

    node, lost = _node(0, SECONDS), gpu_uuid(0, GPUS - 1)
    reason = f"{lost} is lost: the driver cannot reach it any more"
    for values in node.gpu.values():
        values[60:, GPUS - 1] = np.nan
    node.late_facts = [(60, {lost: {"lost": reason}}, {})]
    node.remarks = [reason]
    return write_recording(folder, [node])


def unknown_metrics(folder: str | os.PathLike[str]) -> Path:
    """Write a driver that knows no tensor and DRAM counters and gives one that nobody here knows."""
    node = _node(0, SECONDS)
    for name, identity in (("gpu_tensor_ratio", 5), ("gpu_dram_ratio", 10)):
        del node.gpu[name]
        node.missing[name] = f"this driver does not know GPM metric {identity}"
    node.gpu["gpu_optical_ratio"] = node.gpu["gpu_sm_ratio"] * 0.5
    return write_recording(folder, [node])


def coarse_source(folder: str | os.PathLike[str]) -> Path:
    """Write what an older GPU tells: utilization, memory, power; no SMs and no pipes."""
    node = _node(0, SECONDS)
    kept = [name for name in node.gpu if name.startswith(("gpu_memory", "gpu_power", "gpu_clock", "gpu_temperature"))]
    left_out = [name for name in node.gpu if name not in kept]
    utilization = node.gpu["gpu_graphics_ratio"]
    node.gpu = {"gpu_utilization_ratio": utilization, **{name: node.gpu[name] for name in kept}}
    node.missing = dict.fromkeys(left_out, "GPM needs a Hopper GPU or newer")
    return write_recording(folder, [node])


def no_gpu(folder: str | os.PathLike[str]) -> Path:
    """Write a job of two ranks without GPUs: one busy on 12 of its 16 cores, one on 4."""
    import numpy as np

    node = _node(0, SECONDS, gpus=2)
    node.gpus, node.gpu = {}, {}
    for rank in node.ranks.values():
        rank["gpus"] = []
    node.rank["cpu_cores_ratio"] = np.tile(np.array([12.0, 4.0]), (SECONDS, 1))
    return write_recording(folder, [node])


def no_samples(folder: str | os.PathLike[str]) -> Path:
    """Write a recording that says who sampled what, without a single sample: the command ended at once."""
    node = made_node(0, GPUS)
    return write_recording(folder, [node])


def only_a_beginning(folder: str | os.PathLike[str]) -> Path:
    """Write what is left when a sampler dies at its start: an empty document and no telemetry."""
    from cordee.runs.folder import RunFolder
    from cordee.telemetry.node.recording import claim_number

    place = RunFolder(Path(folder))
    claim_number(place)
    return place.root


def mixed_models(folder: str | os.PathLike[str]) -> Path:
    """Write two nodes with GPUs of different models."""
    other = _node(1, SECONDS)
    for facts in other.gpus.values():
        facts.update(model="NVIDIA H200", memory_bytes=141e9)
    return write_recording(folder, [_node(0, SECONDS), other], job="4711", step="0")


def dropouts(folder: str | os.PathLike[str]) -> Path:
    """Write a node of which every third sample is missing, and of the first GPU's DRAM every second."""
    import numpy as np

    node = _node(0, SECONDS)
    for values in node.gpu.values():
        values[2::3] = np.nan
    node.gpu["gpu_dram_ratio"][::2, 0] = np.nan
    return write_recording(folder, [node])


def many_gpus(folder: str | os.PathLike[str], gpus: int = 10_000, seconds: int = 30, cadence_s: float = 1.0) -> Path:
    """Write a job of `gpus` GPUs, 4 a node; 10,000 x 30 s are about 50 MB with the six metrics that a score needs."""
    import numpy as np

    names = ("graphics", "sm", "tensor", "fp32", "dram")
    kept = [f"gpu_{name}_ratio" for name in names] + ["gpu_power_watts"]
    pattern = _node(0, round(seconds / cadence_s)).gpu
    nodes = [
        made_node(at, GPUS, {name: np.roll(pattern[name], at, axis=0) for name in kept}) for at in range(gpus // GPUS)
    ]
    return write_recording(folder, nodes, cadence_s=cadence_s, job="4711", step="0")


FAULTS: dict[str, Writer] = {
    "healthy": healthy,
    "aborted_job": aborted_job,
    "killed_sampler": killed_sampler,
    "half_written": half_written,
    "ranks_of_different_lengths": ranks_of_different_lengths,
    "missing_node": missing_node,
    "clock_going_back": clock_going_back,
    "mig": mig,
    "shared_gpu": shared_gpu,
    "lost_gpu": lost_gpu,
    "unknown_metrics": unknown_metrics,
    "coarse_source": coarse_source,
    "no_gpu": no_gpu,
    "no_samples": no_samples,
    "only_a_beginning": only_a_beginning,
    "mixed_models": mixed_models,
    "dropouts": dropouts,
}


def _node(index: int, samples: int, gpus: int = GPUS) -> MadeNode:
    """Return a node that computes well, with a little noise that is the same every time."""
    import numpy as np

    chance = np.random.default_rng([6, index])
    node = made_node(index, gpus)
    node.gpu = {name: _around(level, (samples, gpus), chance, name) for name, level in _LEVELS.items()}
    node.rank = {name: _around(level, (samples, gpus), chance, name) for name, level in _RANK.items()}
    node.node_values = {name: _around(level, (samples, 1), chance, name)[:, 0] for name, level in _NODE.items()}
    return node


def _around(level: float, shape: tuple[int, int], chance: np.random.Generator, name: str) -> np.ndarray:
    import numpy as np

    if name.endswith(("_max_hertz", "_total_bytes", "_share_cores")) or level == 0.0 or name == "processes":
        return np.full(shape, level)
    values: np.ndarray = level * (1.0 + 0.02 * chance.standard_normal(shape))
    return np.clip(values, 0.0, 1.0) if name.endswith("_ratio") and level <= 1.0 else values
