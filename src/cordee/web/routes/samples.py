"""What is sampled: groups, devices, and the views that charts are drawn from."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from cordee.runs.catalogue import METRICS
from cordee.web.answers import Format, document_answer, table_answer
from cordee.web.server import server_of
from cordee.web.tables import Table

router = APIRouter(prefix="/api/runs/{run}")


@router.get("/groups")
def groups(request: Request, run: str) -> Response:
    """Return the groups that have samples, with their metrics."""
    found = []
    with server_of(request).shelf.reading(run).run() as opened:
        for name in opened.groups():
            metrics = opened.metrics(name)
            grid = opened.grid(name, [next(iter(metrics))])
            described = [
                {**about, "meaning": METRICS[metric].meaning if metric in METRICS else ""}
                for metric, about in metrics.items()
            ]
            found.append(
                {
                    "name": name,
                    "cadence": grid.cadence,
                    "first": float(grid.times[0]) if len(grid.times) else None,
                    "last": float(grid.times[-1]) if len(grid.times) else None,
                    "devices": len(grid.devices),
                    "metrics": described,
                }
            )
    return document_answer(request, {"groups": found})


@router.get("/heat")
def heat(
    request: Request,
    run: str,
    group: str,
    metric: str,
    start: float | None = None,
    stop: float | None = None,
    columns: Annotated[int, Query(ge=1, le=4000)] = 600,
    format: Format | None = None,
) -> Response:
    """Return one metric of all devices over time."""
    import numpy as np

    with server_of(request).shelf.reading(run).run() as opened:
        grid = opened.grid(group, [metric], start, stop)
    step = max(1, -(-len(grid.times) // columns))
    values = grid.values[0][::step].T
    finite = values[np.isfinite(values)]
    facts = {
        "devices": grid.devices,
        "low": float(finite.min()) if finite.size else None,
        "high": float(finite.max()) if finite.size else None,
        "unit": grid.units[metric],
        "source": grid.sources[metric],
        "cadence": grid.cadence * step,
    }
    return table_answer(request, Table({"times": grid.times[::step], "values": values}, facts), format)
