"""Checkpoint writes over throughput, on one axis of time: what a checkpoint cost is seen as a dent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cordee.core.draw.charts import Across, ChartLine, line_chart
from cordee.systems.checkpoints.pace.words import save_text

if TYPE_CHECKING:
    from cordee.systems.checkpoints.pace import StorageView

_WIDE = Across(1120, 100, 14)
# The first of these that was measured is drawn below the throughput.
_WRITES = {
    "storage_write_bytes_per_second": "Written to shared file systems, all nodes",
    "io_write_bytes_per_second": "Written by all ranks",
    "job_disk_write_bytes_per_second": "Written to local disks by the job",
}
_MOST_CHECKPOINTS = 1000


def storage_charts(view: StorageView, started_at: float | None) -> list[tuple[str, str]]:
    """Return (title, SVG) of throughput and of writes with checkpoints behind them; none without checkpoints and steps.

    Args:
        started_at: what the charts count from, None: the first time of the view.
    """
    if not view.saves or not np.isfinite(view.pace[1]).any():
        return []
    name, times, values = view.throughput()
    origin = started_at if started_at is not None else view.start
    shades = [
        (save.begin - origin, save.end - origin, save_text(save, dent))
        for save, dent in zip(view.saves, view.dents, strict=True)
        if save.begin is not None
    ]
    seen = [(save.end - origin, save_text(save, dent)) for save, dent in zip(view.saves, view.dents, strict=True)]
    marks = [] if shades else seen
    first, last = view.start - origin, view.stop - origin
    curves = [(name[0].upper() + name[1:] if " per " in name else name, times, values, "number"), *_writes(view)]
    charts = []
    for title, at, values, kind in curves:
        line = ChartLine(title, [first, *(at - origin).tolist()], [float("nan"), *values.tolist()])
        svg = line_chart(
            f"{title}; checkpoint writes shaded",
            [line],
            x_label="s",
            y_kind=kind,
            zero=True,
            marks=marks,
            shades=shades,
            x_end=last,
            across=_WIDE,
        )
        charts.append((f"{title} over time; shaded: checkpoints being written", svg))
    return charts


def storage_document(view: StorageView) -> dict[str, Any]:
    """Return what a report's document has of storage: no curves, those are in the run's telemetry."""
    document = view.document()
    document["checkpoints"] = document["checkpoints"][-_MOST_CHECKPOINTS:]
    for curve in ("rates", "pace", "throughput"):
        del document[curve]
    return document


def _writes(view: StorageView) -> list[tuple[str, np.ndarray, np.ndarray, str]]:
    rates = {rate.name: rate for rate in view.rates}
    name = next((name for name in _WRITES if name in rates), None)
    return [] if name is None else [(_WRITES[name], rates[name].times, rates[name].values, "rate")]
