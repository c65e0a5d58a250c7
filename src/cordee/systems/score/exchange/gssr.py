"""Recordings of gssr 0.4 (Python): one JSON document per process, written at its end.

`{"metadata": {job_id, step_id, label, hostname, proc_id, n_gpus, gpu_ids, start_time, end_time, elapsed, sampling_time [ms],
n_samples, cmd}, "data": {gpu id: {DCGM's short name of a field: [values]}}}`. It holds no moment of a sample and no UUID.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from cordee.core.errors import DocumentError
from cordee.systems.score.exchange.dcgm_fields import TAGS, standardise
from cordee.systems.score.exchange.files import read_json
from cordee.systems.score.exchange.imported import FoundDevice, ImportedSamples
from cordee.telemetry.node.recording import RecordedRank

_NEEDED = ("job_id", "step_id", "proc_id", "hostname", "gpu_ids", "start_time", "end_time", "sampling_time")
_LARGEST = 1e300
_SLOWEST = 2.0  # a loop that took longer than this times its interval lost its first samples instead


def looks_like(document: Any) -> bool:
    """Return whether a JSON document is one of gssr."""
    return isinstance(document, dict) and isinstance(document.get("metadata"), dict) and "data" in document


def read_gssr(paths: list[Path]) -> ImportedSamples:
    """Return a job's samples from the documents of its processes.

    Raises:
        DocumentError: one is none of gssr 0.4, or they are of several jobs.
    """
    documents = [(path, _checked(path, read_json(path))) for path in paths]
    cadence_s = min(float(document["metadata"]["sampling_time"]) for _, document in documents) / 1000
    found = ImportedSamples("gssr 0.4 (Python)", "dcgm", cadence_s)
    _of_one_job(found, documents)
    for path, document in documents:
        _add(found, path, document)
    standardise(found)
    found.world_size = len({rank.rank for ranks in found.ranks.values() for rank in ranks})
    found.remark(
        "gssr keeps no moment of a sample: they were laid evenly over the time of the recording, up to its end"
    )
    found.remark("gssr names GPUs by node and index, not by UUID")
    return found


def _checked(path: Path, document: Any) -> dict[str, Any]:
    if not looks_like(document):
        raise DocumentError(
            "this is no recording of gssr",
            file=str(path),
            line=1,
            given=f"keys {', '.join(sorted(document)[:8])}" if isinstance(document, dict) else type(document).__name__,
            allowed="a document with `metadata` and `data`, as gssr 0.4 writes, or the CSV files of gssr-record 2",
        )
    metadata = document["metadata"]
    absent = [key for key in _NEEDED if key not in metadata]
    if absent:
        raise DocumentError(
            f"the metadata lack {', '.join(absent)}: this is of another version of gssr",
            file=str(path),
            line=1,
            given=", ".join(sorted(metadata)) or "no metadata",
            allowed=f"gssr 0.4: {', '.join(_NEEDED)}",
        )
    for key in ("start_time", "end_time", "sampling_time"):
        value = metadata[key]
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < _LARGEST:
            raise DocumentError(f"metadata.{key} is no time", file=str(path), line=1, given=value, allowed="over 0")
    if not str(metadata["proc_id"]).isdecimal():
        raise DocumentError("metadata.proc_id is no rank", file=str(path), line=1, given=metadata["proc_id"])
    if not isinstance(document["data"], dict) or not all(isinstance(of, dict) for of in document["data"].values()):
        raise DocumentError("`data` is no table of GPUs", file=str(path), line=1, allowed="{gpu: {metric: [values]}}")
    checked: dict[str, Any] = document
    return checked


def _of_one_job(found: ImportedSamples, documents: list[tuple[Path, dict[str, Any]]]) -> None:
    jobs = {str(document["metadata"]["job_id"]): path for path, document in documents}
    if len(jobs) > 1:
        raise DocumentError(
            "these files are of several jobs",
            file=str(list(jobs.values())[1]),
            given=", ".join(sorted(jobs)),
            allowed="the files of one job",
            next="import each job into a folder of its own",
        )
    found.job = next(iter(jobs))
    found.step = ",".join(sorted({str(document["metadata"]["step_id"]) for _, document in documents}))


def _add(found: ImportedSamples, path: Path, document: dict[str, Any]) -> None:
    metadata, node = document["metadata"], str(document["metadata"]["hostname"])
    rank = int(metadata["proc_id"])
    keys = []
    for gpu, metrics in document["data"].items():
        device = found.device(node, f"{node}/gpu{gpu}")
        keys.append(device.key)
        device.about["index"] = int(gpu) if str(gpu).isdigit() else 0
        before = device.about.setdefault("ranks", [])
        if before and rank not in before:
            found.remark(
                f"several processes recorded {device.key}: either they share it, or gssr guessed it from the rank"
            )
        before += [rank] if rank not in before else []
        _add_metrics(found, path, device, metadata, metrics)
    found.ranks.setdefault(node, []).append(
        RecordedRank(
            rank=rank,
            pid=0,
            argv=_words(metadata.get("cmd")),
            started_at=float(metadata["start_time"]),
            ended_at=float(metadata["end_time"]),
            devices=keys,
        )
    )


def _words(command: Any) -> list[str]:
    if isinstance(command, list):
        return [str(word) for word in command]
    return [str(command)] if command else []


def _add_metrics(
    found: ImportedSamples, path: Path, device: FoundDevice, metadata: dict[str, Any], metrics: Any
) -> None:
    lists = {name: values for name, values in metrics.items() if isinstance(values, list)}
    if len(lists) < len(metrics):
        name = next(name for name in metrics if name not in lists)
        raise DocumentError(f"{name} is no list of samples", file=str(path), line=1, given=str(metrics[name])[:40])
    lengths = {len(values) for values in lists.values()}
    if len(lengths) > 1:
        found.remark(f"the metrics of {device.key} have different numbers of samples: they were aligned at their end")
    start, end = float(metadata["start_time"]), float(metadata["end_time"])
    interval_s = float(metadata["sampling_time"]) / 1000
    most = max(lengths, default=0)
    # The loop takes a little longer than its sleep; a sample stands for the interval before it.
    spacing_s = min(max((end - start) / most, interval_s), _SLOWEST * interval_s) if most else interval_s
    for name, values in lists.items():
        times = [end - spacing_s * (len(values) - 1 - at) for at in range(len(values))]
        device.series(TAGS.get(name, name)).add(times, [_number(path, name, value) for value in values])


def _number(path: Path, name: str, value: Any) -> float:
    if value is None or value in ("", "N/A"):
        return math.nan
    if isinstance(value, float) or (isinstance(value, int) and abs(value) < _LARGEST and not isinstance(value, bool)):
        return float(value)
    raise DocumentError(f"a sample of {name} is no number", file=str(path), line=1, given=str(value)[:40])
