"""What ranks waited for their data, for pages."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import Field

from cordee.core.web.findings import finding_line
from cordee.core.web.models import Answer, FindingLine, Missing, Moment
from cordee.core.web.parameters import Points, Start, Stop
from cordee.systems.data.loading import loading_view
from cordee.telemetry.shown.server_parts import serving
from cordee.telemetry.store.reader import Run

router = APIRouter(prefix="/api/runs/{run}", tags=["judged"])


class LoadingAnswer(Answer):
    """What ranks read, and what they waited for it."""

    start: Moment
    stop: Moment
    planned: list[dict[str, Any]] = Field(
        description="The data sets of `[data]`: `name`, `place`, `kind`, `licence`, ..."
    )
    sets: list[dict[str, Any]] = Field(
        description="What was loaded: `wait_share`, `wait_per_step_s`, `bytes_per_s`, `requests`, `by_rank`, `curve`, ..."
    )
    findings: list[FindingLine] = Field(description="What is worth changing.")
    missing: list[Missing]


@router.get("/data", response_model=LoadingAnswer)
def data(
    request: Request,
    run: str,
    start: Start = None,
    stop: Stop = None,
    points: Points = 600,
) -> Response:
    """Return the data sets of a run and what ranks waited for them: rates, requests, the share of the limit, over time."""

    def make(opened: Run) -> dict[str, Any]:
        view = loading_view(opened, start, stop, points)
        return {**view.document(), "findings": [finding_line(finding.document()) for finding in view.findings]}

    return serving(request).answer_of(request, run, make)
