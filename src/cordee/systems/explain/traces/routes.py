"""The traces of a run, for pages."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import Field

from cordee.core.web.models import Answer
from cordee.systems.explain.traces.views import traces_of
from cordee.telemetry.shown.server_parts import serving

router = APIRouter(prefix="/api/runs/{run}", tags=["judged"])
_MOST = 1000


class TracesAnswer(Answer):
    """What `cordee profile` has left."""

    folder: str = Field(description="Of the run: paths of traces begin here.")
    count: int = Field(description="How many traces there are; the newest 1,000 are told.")
    traces: list[dict[str, Any]] = Field(description="`profile`, `attempt`, `rank`, `tool`, `path`, `bytes`, `window`.")


@router.get("/traces", response_model=TracesAnswer)
def traces(request: Request, run: str) -> Response:
    """Return the traces that lie in a run's folder, those of the newest profile first."""

    def make(opened: Any) -> dict[str, Any]:
        found = traces_of(opened.folder.root)
        told = [one._asdict() for one in found[:_MOST]]
        return {"folder": str(opened.folder.root), "count": len(found), "traces": told}

    return serving(request).answer_of(request, run, make)
