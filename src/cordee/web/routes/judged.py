"""What is concluded from a run: its score, and what its storage did."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from cordee.web.answers import document_answer
from cordee.web.models import ScoreAnswer
from cordee.web.server import server_of

router = APIRouter(prefix="/api/runs/{run}", tags=["judged"])


@router.get("/score", response_model=ScoreAnswer)
def score(request: Request, run: str) -> Response:
    """Return the score with its diagnosis; it is computed beside the server, at most every 30 s while the run goes on."""
    server = server_of(request)
    reading = server.shelf.reading(run)
    found, computing = server.scores.ask(run, reading.folder, ended=reading.ended())
    if found is None:
        return document_answer(request, {"status": "computing", "computed_at": None, "score": None, "missing": []})
    missing = [] if found.score is not None else [{"what": "the score", "why": found.why, "next": found.next}]
    status = "ready" if found.score is not None else "computing" if computing else "impossible"
    return document_answer(
        request, {"status": status, "computed_at": found.at, "score": found.score, "missing": missing}
    )
