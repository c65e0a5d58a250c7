"""What moved with the time of a step in a run, for pages."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from cordee.core.errors import UsageError
from cordee.core.web.models import Answer, Missing, Moment
from cordee.systems.explain.correlation.views import correlations_of, curves_of
from cordee.telemetry.shown.server_parts import serving

router = APIRouter(prefix="/api/runs/{run}", tags=["judged"])


class CorrelationAnswer(Answer):
    """What moved with the time of a step: the document of `cordee correlate --json`, and curves of its charts."""

    start: Moment = None
    stop: Moment = None
    window_s: float | None = Field(None, description="Metrics and steps are compared in windows of so many seconds.")
    windows: int | None = None
    step_s: float | None = Field(None, description="The median time of a step.")
    step_s_5_95: list[float] | None = Field(None, description="Its 5th and 95th percentile.")
    series: int | None = Field(None, description="How many were looked at, each of one metric of one device.")
    metrics: list[dict[str, Any]] = Field(
        description="The strongest first: `group`, `metric`, `unit`, `strength` (-1 to 1; above 0: higher where steps took longer), "
        "`lag_s` (above 0: it moved first), `devices`, `of`, `strongest[{device, correlation}]`."
    )
    curves: dict[str, Any] | None = Field(
        None,
        description="`times`, `step_s`, and of the first metrics `metrics[{group, metric, unit, device, values}]`.",
    )
    missing: list[Missing]


@router.get("/correlation", response_model=CorrelationAnswer)
def correlation(
    request: Request,
    run: str,
    start: Annotated[float | None, Query(description="UTC epoch seconds.")] = None,
    stop: Annotated[float | None, Query(description="UTC epoch seconds.")] = None,
) -> Response:
    """Return which metrics of which devices moved with the time of a step, how strongly, and which moved first."""

    def make(opened: Any) -> dict[str, Any]:
        try:
            view = correlations_of(opened, start, stop)
        except UsageError as error:
            missing = {
                "what": "what moved with the time of a step",
                "why": error.text,
                "next": error.next or error.allowed,
            }
            return {"metrics": [], "missing": [missing]}
        return {**view.document(), "curves": curves_of(opened, view), "missing": []}

    return serving(request).answer_of(request, run, make)
