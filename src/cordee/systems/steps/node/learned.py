"""What a short run shows of a long one: memory, time of a step, checkpoints, GPUs. Read from its journal and its unsealed samples."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from cordee.client.reserved import CHECKPOINT_BYTES, CHECKPOINT_SECONDS
from cordee.core.units import parse_utc
from cordee.runs.folder import RunFolder
from cordee.runs.journal import read_journal
from cordee.telemetry.node.blocklog import (
    EVENTS,
    GRIDS,
    SCHEMA,
    BlockReader,
    decode_grid,
    decode_json,
    iter_records,
    list_parts,
)

_BUSY = ("gpu_utilization_ratio", "gpu_graphics_ratio")
# The first steps compile, fill caches and open files.
_WARM_UP = 1


class Learned(NamedTuple):
    """What was measured; None is not known.

    Attributes:
        nodes, ranks: that ran.
        seconds: from the start of the ranks to their end.
        steps: how many were seen, `total`: how many the script says that there are.
        step_s: the median time of one, the first left out.
        start_s: from the start of the ranks to the end of the first step.
        memory_bytes: the most of all ranks of a node together, without the page cache.
        gpu_memory_bytes: the most of a GPU; `gpu_total_bytes`: what it has.
        gpu_busy_ratio: the mean over the GPUs; `gpus_unused`: how many never held memory of a rank.
        checkpoint_bytes, save_s: of the largest and slowest save.
        free_bytes: where checkpoints go.
    """

    nodes: int = 0
    ranks: int = 0
    seconds: Optional[float] = None
    steps: int = 0
    total: Optional[int] = None
    step_s: Optional[float] = None
    start_s: Optional[float] = None
    memory_bytes: Optional[float] = None
    gpu_memory_bytes: Optional[float] = None
    gpu_total_bytes: Optional[float] = None
    gpu_busy_ratio: Optional[float] = None
    gpus_unused: Optional[int] = None
    checkpoint_bytes: Optional[float] = None
    save_s: Optional[float] = None
    free_bytes: Optional[int] = None


def learn(folder: RunFolder, checkpoints: Optional[str] = None) -> Learned:
    """Return what a run that has just ended shows.

    Args:
        folder: the run's; its samples are not sealed yet.
        checkpoints: the folder in which it saves.

    Raises:
        RunFolderError: its journal cannot be read.
    """
    events = read_journal(folder.journal)
    attempts = [event for event in events if event["event"] == "attempt_started"]
    placed = attempts[-1]["nodes"] if attempts else []
    ranks_on = {str(each["node"]): len(each["ranks"]) for each in placed}
    began = next((parse_utc(event["time"]) for event in reversed(events) if event["event"] == "rank_started"), None)
    ended = next((parse_utc(event["time"]) for event in reversed(events) if event["event"] == "attempt_ended"), None)
    progress = [event for event in events if event["event"] == "progress"]
    totals = [event["total"] for event in progress if event.get("total")]
    samples = _Samples()
    for _, _, path in list_parts(folder.telemetry):
        samples.read(path)
    steps = samples.step_times()
    gaps = sorted(later - sooner for sooner, later in zip(steps[_WARM_UP:], steps[_WARM_UP + 1 :]))
    sizes = [*samples.logged.get(CHECKPOINT_BYTES, {}).values()]
    seconds = [max(values) for values in samples.logged.get(CHECKPOINT_SECONDS, {}).values()]
    newest = next((event for event in reversed(events) if event["event"] == "checkpoint_seen"), None)
    size: Optional[float] = max((sum(values) for values in sizes), default=None)
    if size is None and newest is not None and checkpoints:
        size = size_of(Path(checkpoints) / str(newest["name"]))
    return Learned(
        nodes=len(ranks_on),
        ranks=sum(ranks_on.values()),
        seconds=ended - began if began is not None and ended is not None else None,
        steps=len(steps),
        total=totals[-1] if totals else None,
        step_s=gaps[len(gaps) // 2] if gaps else None,
        start_s=steps[0] - began if steps and began is not None else None,
        memory_bytes=samples.most_memory(),
        gpu_memory_bytes=max(samples.gpu_memory.values(), default=None),
        gpu_total_bytes=max(samples.gpu_total.values(), default=None),
        gpu_busy_ratio=sum(samples.gpu_busy) / len(samples.gpu_busy) if samples.gpu_busy else None,
        gpus_unused=sum(not used for used in samples.gpu_used.values()) if samples.gpu_used else None,
        checkpoint_bytes=size,
        save_s=max(seconds, default=None),
        free_bytes=_free(checkpoints),
    )


def size_of(place: Path) -> Optional[float]:
    """Return the bytes of a file or of all files in a folder, None where it is gone."""
    try:
        if not place.is_dir():
            return float(place.stat().st_size)
        return float(sum(os.lstat(os.path.join(at, name)).st_size for at, _, names in os.walk(place) for name in names))
    except OSError:
        return None


def _free(place: Optional[str]) -> Optional[int]:
    if not place:
        return None
    path = Path(place)
    there = next((each for each in (path, *path.parents) if each.exists()), None)
    try:
        status = os.statvfs(there) if there is not None else None
    except OSError:
        return None
    return status.f_bavail * status.f_frsize if status is not None else None


class _Samples:
    """What the blocks of a run hold, as far as it is wanted here."""

    def __init__(self) -> None:
        self.logged: Dict[str, Dict[Tuple[int, int], List[float]]] = {}
        self.gpu_memory: Dict[Tuple[str, str], float] = {}
        self.gpu_total: Dict[Tuple[str, str], float] = {}
        self.gpu_used: Dict[Tuple[str, str], bool] = {}
        self.gpu_busy: List[float] = []
        self._schemas: Dict[int, Dict[str, Any]] = {}
        self._memory: Dict[str, float] = {}
        self._first: Dict[int, float] = {}

    def read(self, path: Path) -> None:
        """Take in one part."""
        try:
            for _, _, payload in BlockReader(path):
                for kind, body in iter_records(payload):
                    if kind == SCHEMA:
                        schema = decode_json(body)
                        self._schemas[schema["id"]] = schema
                    elif kind in GRIDS:
                        self._grid(*decode_grid(body, kind))
                    elif kind == EVENTS:
                        self._events(decode_json(body))
        except (OSError, ValueError, KeyError, TypeError):
            return  # what was read counts; a damaged rest is missing, and what it would tell unknown

    def _grid(self, schema: int, moment: float, values: Any) -> None:
        about = self._schemas.get(schema)
        if about is None or about["group"] not in ("rank", "gpu"):
            return
        names = [metric["name"] for metric in about["metrics"]]
        rows = [values[at * len(names) : (at + 1) * len(names)] for at in range(len(about["devices"]))]
        if about["group"] == "rank":
            if "memory_rss_bytes" in names:
                at = names.index("memory_rss_bytes")
                used = sum(row[at] for row in rows if row[at] == row[at])
                self._memory[about["node"]] = max(self._memory.get(about["node"], 0.0), used)
            return
        for device, row in zip(about["devices"], rows):
            key, told = (str(about["node"]), str(device)), dict(zip(names, row))
            for name, known in (("gpu_memory_used_bytes", self.gpu_memory), ("gpu_memory_total_bytes", self.gpu_total)):
                value = told.get(name, float("nan"))
                if value == value:
                    known[key] = max(known.get(key, 0.0), value)
            processes = told.get("gpu_processes", float("nan"))
            if processes == processes:
                self.gpu_used[key] = self.gpu_used.get(key, False) or processes > 0
            busy = next((told[name] for name in _BUSY if told.get(name, float("nan")) == told.get(name)), None)
            if busy is not None:
                self.gpu_busy.append(busy)

    def _events(self, document: Dict[str, Any]) -> None:
        for _, moment, step, values in document["events"]:
            if step is not None:
                first = self._first.get(step)
                self._first[step] = moment if first is None else max(first, moment)
            for name, value in values.items():
                if name in (CHECKPOINT_BYTES, CHECKPOINT_SECONDS) and step is not None:
                    self.logged.setdefault(name, {}).setdefault((document["attempt"], step), []).append(float(value))

    def step_times(self) -> List[float]:
        """Return when each step was over on all ranks that told of it, in the order of steps; at most one for each."""
        return [self._first[step] for step in sorted(self._first)]

    def most_memory(self) -> Optional[float]:
        """Return the most that the ranks of a node held together."""
        return max(self._memory.values(), default=None)
