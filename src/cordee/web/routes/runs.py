"""`/api/about`, the list of runs, and one run's document."""

from __future__ import annotations

import time
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

import cordee
from cordee.report.run_document import run_document
from cordee.web.answers import document_answer
from cordee.web.server import server_of

router = APIRouter(prefix="/api")


@router.get("/about")
def about(request: Request) -> Response:
    """Say which version this is, what time it is here, and which folders it shows."""
    server = server_of(request)
    folders = [str(folder) for folder in server.shelf.folders]
    return document_answer(request, {"version": cordee.__version__, "now": time.time(), "folders": folders})


@router.get("/runs")
def runs(
    request: Request,
    state: str | None = None,
    name: str | None = None,
    limit: Annotated[int, Query(ge=1, le=5000)] = 200,
    offset: Annotated[int, Query(ge=0)] = 0,
) -> Response:
    """List the runs, the newest first."""
    found = [
        vars(one) for one in server_of(request).shelf.summaries()
        if state in (None, one.state) and (name is None or name.lower() in one.id.lower())
    ]  # fmt: skip
    return document_answer(request, {"runs": found[offset : offset + limit], "total": len(found), "now": time.time()})


@router.get("/runs/{run}")
def run(request: Request, run: str) -> Response:
    """Return one run's document."""
    reading = server_of(request).shelf.reading(run)
    state, _ = reading.state()
    document = run_document(reading.folder, state)
    document["phases"] = [vars(phase) for phase in state.phases]
    document["attempts"] = state.attempts
    document["missing"] = []
    document["now"] = time.time()
    return document_answer(request, document)
