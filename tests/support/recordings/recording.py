"""Recordings made from numbers instead of measurements: for tests, demos and accuracy studies.

Everything that is written says so: the source of each metric and of each sampler is `synthetic`, and a remark repeats it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cordee.runs.folder import RunFolder
from cordee.telemetry.node.blocklog import BlockLogWriter, encode_events, encode_facts, encode_grid, encode_schema
from cordee.telemetry.node.catalogue import METRICS
from cordee.telemetry.node.recording import RecordedRank, Recorder, claim_number, write_recorder

if TYPE_CHECKING:
    import numpy as np

SOURCE = "synthetic"
REMARK = "Synthetic: these samples were computed, not measured."
STARTED_AT = 1_790_000_000.0
H100 = "NVIDIA H100 80GB HBM3"


@dataclass
class MadeNode:
    """What the sampler of one node is made to have seen.

    Attributes:
        gpus: facts of each device by UUID, in the order of the columns of `gpu`.
        ranks: facts of each rank, in the order of the columns of `rank`; `devices` are its GPUs.
        gpu, rank: values [time, device] by metric. node_values: values [time] by metric.
        times: UTC epoch seconds of the samples; None: every `cadence_s` from `start_s` after the recording's start.
        missing: why GPU metrics are not there, by name.
        late_facts: (index of the sample before which they are told, devices, missing) of the GPU group.
        ended: whether the sampler closed the recording. exit_code, signal: how its ranks ended.
        logged: by rank events (seconds after the start, step or None, values).
    """

    name: str
    gpus: dict[str, dict[str, Any]] = field(default_factory=dict)
    ranks: dict[int, dict[str, Any]] = field(default_factory=dict)
    gpu: dict[str, np.ndarray] = field(default_factory=dict)
    rank: dict[str, np.ndarray] = field(default_factory=dict)
    node_values: dict[str, np.ndarray] = field(default_factory=dict)
    start_s: float = 0.0
    times: np.ndarray | None = None
    missing: dict[str, str] = field(default_factory=dict)
    late_facts: list[tuple[int, dict[str, dict[str, Any]], dict[str, str]]] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    ended: bool = True
    exit_code: int | None = 0
    signal: int | None = None
    logged: dict[int, list[tuple[float, int | None, dict[str, float]]]] = field(default_factory=dict)

    @property
    def samples(self) -> int:
        """How many samples there are."""
        if self.times is not None:
            return len(self.times)
        tables: list[np.ndarray] = [*self.gpu.values(), *self.rank.values(), *self.node_values.values()]
        return len(tables[0]) if tables else 0


def gpu_uuid(node: int, gpu: int) -> str:
    """Return the UUID of a made GPU; the same every time."""
    return f"GPU-5c9f0000-{node:04x}-4000-8000-{gpu:012x}"


def made_node(
    index: int,
    gpus: int,
    gpu: Mapping[str, np.ndarray] | None = None,
    *,
    model: str = H100,
    memory_bytes: float = 80e9,
    cores_per_rank: int = 16,
) -> MadeNode:
    """Return a node `nid<index>` with `gpus` GPUs, one rank on each, and the GPUs' values [time, gpu] by metric."""
    devices, ranks = {}, {}
    for at in range(gpus):
        rank = index * gpus + at
        facts = {"model": model, "index": at, "parent": "", "share": 1.0, "memory_bytes": memory_bytes}
        devices[gpu_uuid(index, at)] = {**facts, "ranks": [rank], "shared": "", "numa": at % 2}
        ranks[rank] = made_rank(index, at, rank, [gpu_uuid(index, at)], cores_per_rank)
    return MadeNode(f"nid{index:06d}", devices, ranks, dict(gpu or {}))


def made_rank(node: int, local_rank: int, rank: int, gpus: Sequence[str], cores: int) -> dict[str, Any]:
    """Return the facts of a rank."""
    cpus = list(range(local_rank * cores, (local_rank + 1) * cores))
    words = {"node": f"nid{node:06d}", "pid": 40_000 + rank, "local_rank": local_rank}
    return {**words, "cpus": cpus, "gpus": list(gpus), "bound": ""}


def write_recording(
    folder: str | os.PathLike[str],
    nodes: Sequence[MadeNode],
    *,
    cadence_s: float = 1.0,
    started_at: float = STARTED_AT,
    job: str = "",
    step: str = "",
    world_size: int | None = None,
    argv: Sequence[str] = ("python", "train.py"),
    remark: str = REMARK,
    source: str = SOURCE,
) -> Path:
    """Write a recording of made nodes, one sampler each, and return its folder.

    Args:
        cadence_s: seconds between samples of all groups.
        world_size: ranks of the step; None: those of the nodes.
        source: the name of what measured, for all metrics.

    Raises:
        RunFolderError: the folder cannot be written.
    """
    place = RunFolder(Path(folder))
    ranks = sum(len(node.ranks) for node in nodes) if world_size is None else world_size
    first = claim_number(place)
    for number, node in enumerate(nodes, first):  # nobody else writes there meanwhile
        writer = BlockLogWriter(place.telemetry, number)
        times = _times(node, cadence_s, started_at)
        _append(writer, node, times, cadence_s, source, remark)
        writer.close()
        last = float(times[-1]) if len(times) else started_at + node.start_s
        write_recorder(
            place,
            Recorder(
                number,
                node.name,
                node.name,
                30_000 + number,
                started_at + node.start_s,
                cadence_s,
                "0",
                job=job,
                step=step,
                world_size=ranks or None,
                heard_at=last,
                ended_at=last if node.ended else None,
                sources=[source],
                remarks=[text for text in (remark, *node.remarks) if text],
                ranks=[_recorded(node, rank, list(argv), started_at, last) for rank in node.ranks],
            ),
        )
    return place.root


def _times(node: MadeNode, cadence_s: float, started_at: float) -> np.ndarray:
    import numpy as np

    if node.times is not None:
        return node.times
    return started_at + node.start_s + np.arange(node.samples) * cadence_s


def _recorded(node: MadeNode, rank: int, argv: list[str], started_at: float, last: float) -> RecordedRank:
    about = node.ranks[rank]
    return RecordedRank(
        rank,
        int(about["pid"]),
        argv,
        started_at + node.start_s,
        local_rank=about["local_rank"],
        devices=about["gpus"],
        cpus=about["cpus"],
        ended_at=last if node.ended else None,
        exit_code=node.exit_code if node.ended else None,
        signal=node.signal if node.ended else None,
    )


def _append(
    writer: BlockLogWriter, node: MadeNode, times: np.ndarray, cadence_s: float, source: str, remark: str
) -> None:
    import numpy as np

    started = float(times[0]) if len(times) else STARTED_AT
    of_ranks = {str(rank): about for rank, about in node.ranks.items()}
    cores = sum(len(about["cpus"]) for about in node.ranks.values())
    tables: list[tuple[str, list[Any], dict[str, dict[str, Any]], Mapping[str, np.ndarray], dict[str, str]]] = [
        ("gpu", list(node.gpus), node.gpus, node.gpu, node.missing),
        ("rank", list(node.ranks), of_ranks, node.rank, {}),
        ("node", [node.name], {node.name: {"cpus": cores}}, node.node_values, {}),
    ]
    grids: list[tuple[int, np.ndarray]] = []
    for group, devices, facts, values, missing in tables:
        if not devices:
            continue
        writer.append(encode_facts(node.name, group, started, facts, missing, [remark] if remark else []))
        if values:
            metrics = [{"name": name, "unit": _unit(name), "source": source} for name in values]
            schema, record = encode_schema(node.name, group, cadence_s, devices, metrics)
            writer.append(record)
            table = np.stack([np.asarray(of, dtype="<f4").reshape(len(times), len(devices)) for of in values.values()])
            grids.append((schema, np.ascontiguousarray(table.transpose(1, 2, 0))))
    late = {at: (about, why) for at, about, why in node.late_facts}
    for at, moment in enumerate(times):
        if at in late:
            writer.append(encode_facts(node.name, "gpu", float(moment), *late[at]))
        for schema, rows in grids:
            writer.append(encode_grid(schema, float(moment), rows[at].tobytes()))
        writer.flush()
    for rank, events in node.logged.items():
        told = [(at, started + after, step, values) for at, (after, step, values) in enumerate(events)]
        writer.append(encode_events(node.name, rank, 1, 0, told))


def _unit(name: str) -> str:
    return METRICS[name].unit if name in METRICS else "ratio"
