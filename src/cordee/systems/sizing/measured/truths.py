"""What runs used of memory beside what was predicted: the log from which plans are calibrated is made of the runs themselves."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cordee.core.errors import CordeeError
from cordee.runs.folder import RunFolder
from cordee.runs.index import list_runs
from cordee.systems.sizing.measured.calibration import MeasuredPeak, calibration_key

if TYPE_CHECKING:
    from cordee.telemetry.store.reader import Run

# Of jobs with GPUs, and of those without: what it is, its group, its metric.
_MEASURED = (
    ("memory of one GPU", "gpu", "gpu_memory_used_bytes"),
    ("resident memory of one rank, Python and its libraries too", "rank", "memory_rss_bytes"),
)
_MOST_RUNS = 200


def measured_peak(run: Run, part: Mapping[str, Any]) -> tuple[float | None, str]:
    """Return the most that was sampled of what the part of a plan predicts, and what it is; None where nothing was."""
    what, group, metric = _MEASURED[0 if part.get("device") else 1]
    if group not in run.groups() or metric not in run.metrics(group):
        return None, ""
    known = [float(value) for value in run.grid(group, [metric]).values.ravel() if math.isfinite(value)]
    return (max(known), what) if known else (None, "")


def truths(folders: Sequence[Path]) -> list[MeasuredPeak]:
    """Return the predicted and measured peaks of the last runs in some folders that have finished; others tell nothing."""
    from cordee.telemetry.store.reader import Run

    found = []
    for summary in list_runs(*folders)[-_MOST_RUNS:]:
        if summary.state != "finished":
            continue
        try:
            run = Run(RunFolder(Path(summary.folder)))
            part = run.plan["steps"][0]["systems"]["sizing"]
            measured, _ = measured_peak(run, part)
            predicted = int(part.get("planned_bytes") or part["peak_bytes"])
            low, high = part["interval_bytes"]
        except (CordeeError, KeyError, IndexError, TypeError, OSError):
            continue
        if measured and predicted > 0:
            key = calibration_key(on_gpu=bool(part.get("device")), traced=part.get("method") != "formula")
            found.append(MeasuredPeak(summary.id, key, predicted, round(measured), low <= measured <= high))
    return found
