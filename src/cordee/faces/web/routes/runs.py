"""`/api/about`, the list of runs, and one run's document."""

from __future__ import annotations

import time
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

import cordee
from cordee.faces.web.answers.forms import document_answer, run_document_answer
from cordee.faces.web.answers.models import About, RunList, RunPage
from cordee.faces.web.live import POLL_S
from cordee.faces.web.runs.document import page_document
from cordee.faces.web.server import server_of
from cordee.systems.score.views import Scores

router = APIRouter(prefix="/api", tags=["runs"])


@router.get("/about", response_model=About)
def about(request: Request) -> Response:
    """Return which version this is, what time it is here, and which folders it shows."""
    folders = [str(folder) for folder in server_of(request).shelf.folders]
    return document_answer(
        request, {"version": cordee.__version__, "now": time.time(), "folders": folders, "poll_s": POLL_S}
    )


@router.get("/runs", response_model=RunList)
def runs(
    request: Request,
    state: Annotated[
        str | None, Query(max_length=40, description="Only runs in this state.", examples=["running"])
    ] = None,
    name: Annotated[str | None, Query(max_length=200, description="Only runs whose id has this in it.")] = None,
    limit: Annotated[int, Query(ge=1, le=5000, description="At most so many.")] = 200,
    offset: Annotated[int, Query(ge=0, le=10_000_000, description="Beginning with this one.")] = 0,
) -> Response:
    """List runs and recordings, the newest first."""
    server = server_of(request)
    found = [
        summary
        for summary in server.shelf.summaries()
        if state in (None, summary.state) and (name is None or name.lower() in summary.id.lower())
    ]
    scores = server.part(Scores)
    lines = [vars(summary) | {"score": scores.known(summary.id)} for summary in found[offset : offset + limit]]
    return document_answer(request, {"runs": lines, "total": len(found), "now": time.time()})


@router.get("/runs/{run}", response_model=RunPage)
def run(
    request: Request,
    run: str,
    brief: Annotated[bool, Query(description="Without `ranks` and the results of each node, which are long.")] = False,
) -> Response:
    """Return one run: all of `cordee show --json`, with phases, attempts, checkpoints, progress and what is missing."""
    server = server_of(request)
    reading = server.shelf.reading(run)
    often = None if reading.ended() else int(time.time())
    if often is None:
        server.complete(run, reading)
    return run_document_answer(request, reading, lambda: page_document(reading, brief=brief), often=often)
