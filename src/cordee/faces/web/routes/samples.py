"""What is sampled: groups, devices, and the views that charts are drawn from."""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response

from cordee.core.errors import UsageError
from cordee.core.web.parameters import Start, Stop
from cordee.faces.web.answers.forms import AnswerFormat, run_document_answer, table_answer
from cordee.faces.web.answers.models import BandsView, Devices, Groups, HeatView, LinesView
from cordee.faces.web.answers.openapi import TABLE
from cordee.faces.web.answers.tables import NumberTable
from cordee.faces.web.runs.devices import describe_devices
from cordee.faces.web.server import server_of
from cordee.telemetry.node.catalogue import METRICS
from cordee.telemetry.store import views
from cordee.telemetry.store.reader import Run

router = APIRouter(prefix="/api/runs/{run}", tags=["samples"])

_MOST_DEVICES = 64
_MOST_VALUES = 16_000_000
GroupName = Annotated[str, Query(max_length=200, description="A group: gpu, node, rank.", examples=["rank"])]
MetricName = Annotated[str, Query(max_length=500, description="A metric of it.", examples=["memory_rss_bytes"])]
Columns = Annotated[int, Query(ge=1, le=4000, description="At most so many columns.")]
Points = Annotated[int, Query(ge=1, le=5000, description="At most so many points.")]
Form = Annotated[
    AnswerFormat | None, Query(description="frame, json or arrow; default: by the header Accept, else json.")
]
Statistic = Annotated[Literal["mean", "min", "max", "count"], Query(description="Of the samples in a cell.")]


@router.get("/groups", response_model=Groups)
def groups(request: Request, run: str) -> Response:
    """Return the groups that have samples: cadence, first and last time, devices, metrics with unit and source."""
    reading = server_of(request).shelf.reading(run)

    def make() -> dict[str, Any]:
        with reading.run() as opened:
            return {"groups": [_group(opened, name) for name in opened.groups()]}

    return run_document_answer(request, reading, make)


@router.get("/devices", response_model=Devices)
def devices(request: Request, run: str, group: GroupName) -> Response:
    """Return who the devices of a group are: node, ranks, model, place; in the order of a heat map's rows."""
    reading = server_of(request).shelf.reading(run)

    def make() -> dict[str, Any]:
        state, _ = reading.state()
        places = reading.places(state.world_size).of
        with reading.run() as opened:
            return {"group": group, "devices": describe_devices(opened, group, state, places)}

    return run_document_answer(request, reading, make)


@router.get("/heat", response_model=HeatView, responses=TABLE)
def heat(
    request: Request,
    run: str,
    group: GroupName,
    metric: MetricName,
    start: Start = None,
    stop: Stop = None,
    columns: Columns = 600,
    rows: Annotated[int | None, Query(ge=1, le=20_000, description="At most so many rows.")] = None,
    statistic: Statistic = "mean",
    format: Form = None,
) -> Response:
    """Return one metric of all devices over time: `values` f32 [row, column], NaN where nothing was measured."""
    reading = server_of(request).shelf.reading(run)

    def make() -> NumberTable:
        with reading.run() as opened:
            return _table(views.heat(opened, group, metric, start, stop, columns, rows, statistic), ("times", "values"))

    return table_answer(request, reading, format, make)


@router.get("/bands", response_model=BandsView, responses=TABLE)
def bands(
    request: Request,
    run: str,
    group: GroupName,
    metric: MetricName,
    start: Start = None,
    stop: Stop = None,
    points: Points = 600,
    format: Form = None,
) -> Response:
    """Return how the devices were spread over time: count, mean, min, p5, p25, p50, p75, p95, max."""
    reading = server_of(request).shelf.reading(run)
    names = ("times", "count", "mean", "min", "p5", "p25", "p50", "p75", "p95", "max")

    def make() -> NumberTable:
        with reading.run() as opened:
            return _table(views.bands(opened, group, metric, start, stop, points), names)

    return table_answer(request, reading, format, make)


@router.get("/lines", response_model=LinesView, responses=TABLE)
def lines(
    request: Request,
    run: str,
    group: GroupName,
    metric: MetricName,
    devices: Annotated[str, Query(max_length=20_000, description="Names, separated by commas.", examples=["0"])],
    start: Start = None,
    stop: Stop = None,
    points: Points = 600,
    format: Form = None,
) -> Response:
    """Return one metric of a few devices over time: mean, low and high f32 [device, point]."""
    wanted = list(dict.fromkeys(name for name in devices.split(",") if name))
    if not 0 < len(wanted) <= _MOST_DEVICES:
        raise UsageError("lines are of a few devices", given=len(wanted), allowed=f"1 to {_MOST_DEVICES}")
    reading = server_of(request).shelf.reading(run)

    def make() -> NumberTable:
        with reading.run() as opened:
            return _table(
                views.lines(opened, group, metric, wanted, start, stop, points), ("times", "mean", "low", "high")
            )

    return table_answer(request, reading, format, make)


def _table(seen: Any, arrays: tuple[str, ...]) -> NumberTable:
    """Return a view as a table: these of its attributes as arrays, the others as facts.

    Raises:
        UsageError: it is larger than what is sent at once.
    """
    size = sum(getattr(seen, name).size for name in arrays)
    if size > _MOST_VALUES:
        raise UsageError(
            "this view is too large", given=f"{size} values", allowed=_MOST_VALUES, next="ask for fewer rows or columns"
        )
    facts = {field.name: getattr(seen, field.name) for field in fields(seen) if field.name not in arrays}
    return NumberTable({name: getattr(seen, name) for name in arrays}, facts)


def _described(name: str, about: dict[str, Any]) -> dict[str, Any]:
    meaning = METRICS[name].meaning if name in METRICS else ""
    return {"name": name, "unit": about.get("unit", ""), "source": about.get("source", ""), "meaning": meaning}


def _group(run: Run, name: str) -> dict[str, Any]:
    source = run.source(name)
    first, stop = source.extent()
    return {
        "name": name,
        "cadence": source.cadence,
        "first": first * source.cadence if stop > first else None,
        "last": (stop - 1) * source.cadence if stop > first else None,
        "devices": len(source.devices),
        "metrics": [_described(metric, about) for metric, about in source.metrics.items()],
    }
