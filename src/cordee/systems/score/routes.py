"""A run's score, for pages."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import Field

from cordee.core.web.models import Answer, Missing, Moment
from cordee.systems.score.views import Scores
from cordee.telemetry.shown.server_parts import serving

router = APIRouter(prefix="/api/runs/{run}", tags=["judged"])


class ScoreAnswer(Answer):
    """A run's score, where it is computed."""

    status: str = Field(description="`ready`, `computing` (ask again), or `impossible`: see `missing`.")
    computed_at: Moment
    score: dict[str, Any] | None = Field(description="The document of `cordee score --json`.")
    missing: list[Missing]


@router.get("/score", response_model=ScoreAnswer)
def score(request: Request, run: str) -> Response:
    """Return the score with its diagnosis; it is computed beside the server, at most every 30 s while the run goes on."""
    server = serving(request)
    found, computing = server.part(Scores).ask(run, server.folder(run), ended=server.ended(run))
    if found is None:
        return server.answer(request, {"status": "computing", "computed_at": None, "score": None, "missing": []})
    missing = [] if found.document is not None else [{"what": "the score", "why": found.why, "next": found.next}]
    status = "ready" if found.document is not None else "computing" if computing else "impossible"
    return server.answer(
        request, {"status": status, "computed_at": found.at, "score": found.document, "missing": missing}
    )
