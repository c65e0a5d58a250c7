"""What a run's storage did to it, for pages."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import Field

from cordee.core.web.models import Answer, Missing, Moment
from cordee.core.web.parameters import Points, Start, Stop
from cordee.systems.checkpoints.pace import storage_view
from cordee.telemetry.shown.server_parts import serving

router = APIRouter(prefix="/api/runs/{run}", tags=["judged"])


class StorageAnswer(Answer):
    """What storage did while checkpoints were written."""

    start: Moment
    stop: Moment
    rates: list[dict[str, Any]] = Field(description="Of the whole job: `name`, `unit`, `times`, `values`, ...")
    checkpoints: list[dict[str, Any]] = Field(description="`begin`, `end`, `step`, `bytes`, `lost_s`, `text`, ...")
    pace: dict[str, Any] = Field(description="`times` and `values` in steps per second.")
    throughput: dict[str, Any] | None = Field(description="As ranks logged it: `name`, `times`, `values`.")
    summary: dict[str, Any]
    missing: list[Missing]


@router.get("/storage", response_model=StorageAnswer)
def storage(
    request: Request,
    run: str,
    start: Start = None,
    stop: Stop = None,
    points: Points = 600,
) -> Response:
    """Return rates of storage, checkpoint writes, throughput over the same time, and what each write cost the training."""
    return serving(request).answer_of(request, run, lambda opened: storage_view(opened, start, stop, points).document())
