"""What one run asked for, and what it used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cordee.core.errors import CordeeError
from cordee.runs.folder import RunFolder
from cordee.runs.state import RunState

if TYPE_CHECKING:
    from cordee.telemetry.store.reader import Run

_BUSY = ("gpu_utilization_ratio", "gpu_graphics_ratio")


@dataclass(frozen=True)
class RunUse:
    """One run; None: not known.

    Attributes:
        request: as planned.
        finished: whether it did all that it should.
        seconds: that its segments took, without waiting for nodes.
        left_steps: of its steps, the share that was not done.
        memory_bytes: the most that the ranks of one node held together, without the page cache.
        cores: of a rank that used most: the mean over its busiest tenth of samples.
        gpu_memory_bytes, gpu_total_bytes: of the fullest GPU, and what it has.
        gpu_busy_ratio: the mean over the GPUs; `gpus`: how many were measured, `gpus_used`: how many ever held memory.
        waited_s: for nodes.
    """

    run: str
    request: dict[str, Any]
    finished: bool
    seconds: float | None = None
    memory_bytes: float | None = None
    cores: float | None = None
    gpu_memory_bytes: float | None = None
    gpu_total_bytes: float | None = None
    gpu_busy_ratio: float | None = None
    gpus: int = 0
    gpus_used: int | None = None
    waited_s: float | None = None


def use_of(folder: RunFolder) -> RunUse:
    """Return what a run asked for and used.

    Raises:
        RunFolderError: its plan or journal cannot be read.
    """
    from cordee.telemetry.store.reader import Run

    run = Run(folder)
    state, request = run.state, run.plan["steps"][0]["request"]
    groups = run.groups()
    found: dict[str, Any] = {}
    for group, read in (("rank", _ranks), ("gpu", _gpus)):
        if group in groups:
            try:
                found.update(read(run, state))
            except CordeeError:
                continue  # what cannot be read is not known
    return RunUse(folder.id, request, state.state == "finished", _seconds(state), waited_s=_waited(state), **found)


def _seconds(state: RunState) -> float | None:
    spans = [
        one.ended_at - one.started_at
        for one in state.segment_states
        if one.started_at is not None and one.ended_at is not None
    ]
    return sum(spans) if spans else None


def _waited(state: RunState) -> float | None:
    spans = [phase.end - phase.start for phase in state.phases if phase.name == "queue" and phase.end is not None]
    return sum(spans) if spans else None


def _ranks(run: Run, state: RunState) -> dict[str, Any]:
    import numpy as np

    names = [name for name in ("memory_rss_bytes", "cpu_cores_ratio") if name in run.metrics("rank")]
    grid = run.grid("rank", names)
    values = dict(zip(names, grid.values, strict=True))
    places = {rank.rank: rank.node for rank in state.ranks}
    found: dict[str, Any] = {}
    memory = values.get("memory_rss_bytes")
    if memory is not None and np.isfinite(memory).any():
        nodes: dict[str, list[int]] = {}
        for at, rank in enumerate(grid.devices):
            nodes.setdefault(places.get(int(rank), "?"), []).append(at)
        found["memory_bytes"] = max(float(np.nansum(memory[:, at], axis=1).max()) for at in nodes.values())
    cores = values.get("cpu_cores_ratio")
    if cores is not None and np.isfinite(cores).any():
        known = [column[np.isfinite(column)] for column in cores.T]
        tenths = [np.sort(column)[-max(1, len(column) // 10) :].mean() for column in known if len(column)]
        found["cores"] = float(max(tenths))
    return found


def _gpus(run: Run, state: RunState) -> dict[str, Any]:
    import numpy as np

    there = run.metrics("gpu")
    wanted = ("gpu_memory_used_bytes", "gpu_memory_total_bytes", "gpu_processes", *_BUSY)
    names = [name for name in wanted if name in there]
    if not names:
        return {}
    grid = run.grid("gpu", names)
    values = dict(zip(names, grid.values, strict=True))
    found: dict[str, Any] = {"gpus": len(grid.devices)}
    for key, name in (("gpu_memory_bytes", wanted[0]), ("gpu_total_bytes", wanted[1])):
        if name in values and np.isfinite(values[name]).any():
            found[key] = float(np.nanmax(values[name]))
    busy = next((values[name] for name in _BUSY if name in values and np.isfinite(values[name]).any()), None)
    if busy is not None:
        found["gpu_busy_ratio"] = float(np.nanmean(busy))
    processes = values.get("gpu_processes")
    if processes is not None and np.isfinite(processes).any():
        found["gpus_used"] = int((np.nan_to_num(processes).max(axis=0) > 0).sum())
    return found
