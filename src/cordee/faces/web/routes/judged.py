"""What is concluded from a run: its score, what its storage did to it, and what it waited for data."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from cordee.faces.web.answers import document_answer, run_document_answer
from cordee.faces.web.evidence import finding_line
from cordee.faces.web.models import LoadingAnswer, ScoreAnswer, StorageAnswer
from cordee.faces.web.parameters import Start, Stop
from cordee.faces.web.server import server_of
from cordee.systems.checkpoints.pace import storage_view
from cordee.systems.data.loading import loading_view

router = APIRouter(prefix="/api/runs/{run}", tags=["judged"])

Points = Annotated[int, Query(ge=2, le=5000, description="At most so many for each curve.")]


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


@router.get("/storage", response_model=StorageAnswer)
def storage(
    request: Request,
    run: str,
    start: Start = None,
    stop: Stop = None,
    points: Points = 600,
) -> Response:
    """Return rates of storage, checkpoint writes, throughput over the same time, and what each write cost the training."""
    reading = server_of(request).shelf.reading(run)

    def make() -> dict[str, Any]:
        with reading.run() as opened:
            return storage_view(opened, start, stop, points).document()

    return run_document_answer(request, reading, make)


@router.get("/data", response_model=LoadingAnswer)
def data(
    request: Request,
    run: str,
    start: Start = None,
    stop: Stop = None,
    points: Points = 600,
) -> Response:
    """Return the data sets of a run and what ranks waited for them: rates, requests, the share of the limit, over time."""
    reading = server_of(request).shelf.reading(run)

    def make() -> dict[str, Any]:
        with reading.run() as opened:
            view = loading_view(opened, start, stop, points)
        return {**view.document(), "findings": [finding_line(finding.document()) for finding in view.findings]}

    return run_document_answer(request, reading, make)
