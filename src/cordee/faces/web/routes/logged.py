"""What ranks logged, and the curves of several runs side by side."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Request, Response

from cordee.core.errors import CordeeError, UsageError
from cordee.faces.web.answers.forms import AnswerFormat, document_answer, run_document_answer, table_answer
from cordee.faces.web.answers.models import LoggedModel, LoggedView, RunComparison
from cordee.faces.web.answers.openapi import TABLE
from cordee.faces.web.answers.tables import NumberTable
from cordee.faces.web.runs.logged import curve, list_logged
from cordee.faces.web.server import server_of
from cordee.job.settings import differences

router = APIRouter(prefix="/api", tags=["logged"])

_MOST_RUNS = 16
By = Annotated[Literal["step", "time"], Query(description="What x is.")]
Points = Annotated[int, Query(ge=1, le=20_000, description="At most so many points.")]


@router.get("/runs/{run}/logged", response_model=LoggedModel)
def logged(request: Request, run: str) -> Response:
    """Return the names under which ranks logged something, with how many ranks and steps and the newest value."""
    reading = server_of(request).shelf.reading(run)

    def make() -> dict[str, Any]:
        with reading.run() as opened:
            return list_logged(opened)

    return run_document_answer(request, reading, make)


@router.get("/runs/{run}/logged/{name:path}", response_model=LoggedView, responses=TABLE)
def logged_curve(
    request: Request,
    run: str,
    name: Annotated[str, Path(max_length=500, description="What it was logged as; slashes are part of it.")],
    by: By = "step",
    rank: Annotated[int | None, Query(ge=0, le=(1 << 31) - 1, description="Only this rank.")] = None,
    points: Points = 2000,
    format: Annotated[AnswerFormat | None, Query(description="frame, json or arrow.")] = None,
) -> Response:
    """Return a logged metric over steps or time: mean, least and greatest over ranks, and how many logged it."""
    reading = server_of(request).shelf.reading(run)

    def make() -> NumberTable:
        with reading.run() as opened:
            columns = curve(opened, name, by=by, rank=rank, points=points)
        return NumberTable(columns, {"name": name, "by": by, "rank": rank})

    return table_answer(request, reading, format, make)


@router.get("/compare", response_model=RunComparison)
def compare(
    request: Request,
    runs: Annotated[str, Query(max_length=5000, description="Ids, separated by commas.", examples=["a,b"])],
    metric: Annotated[str, Query(max_length=500, description="A logged metric.")] = "loss",
    by: By = "step",
    points: Points = 1000,
) -> Response:
    """Return one logged metric of several runs, over steps or over seconds since each began, and how their settings differ."""
    shelf = server_of(request).shelf
    ids = list(dict.fromkeys(one for one in runs.split(",") if one))
    if not 0 < len(ids) <= _MOST_RUNS:
        raise UsageError("a comparison is of a few runs", given=len(ids), allowed=f"1 to {_MOST_RUNS}")
    curves, missing = [], []
    for one in ids:
        reading = shelf.reading(one)
        state, _ = reading.state()
        try:
            with reading.run() as opened:
                columns = curve(opened, metric, by=by, rank=None, points=points)
        except CordeeError as error:
            missing.append({"what": f"{metric} of {one}", "why": error.text, "next": None})
            continue
        if by == "time" and len(columns["x"]):
            columns["x"] = columns["x"] - (state.started_at or columns["x"][0])
        lists = {key: columns[key].tolist() for key in ("x", "mean", "low", "high")}
        curves.append({"id": one, "name": reading.folder.id, "state": state.state, **lists})
    settings = differences({one: shelf.folder(one) for one in ids})
    return document_answer(
        request, {"metric": metric, "by": by, "runs": curves, "settings": settings, "missing": missing}
    )
