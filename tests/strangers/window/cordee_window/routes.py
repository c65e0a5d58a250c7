"""What its page asks for."""

from __future__ import annotations

import json
from typing import Any, ClassVar

from fastapi import APIRouter, Request, Response

from cordee.telemetry.shown.server_parts import serving
from cordee.telemetry.store.reader import Run

router = APIRouter(prefix="/api/runs/{run}")


class Visits:
    """How often the server was asked, for as long as it lives."""

    closed: ClassVar[list[int]] = []

    def __init__(self) -> None:
        self.count = 0

    def close(self) -> None:
        self.closed.append(self.count)


@router.get("/window")
def window(request: Request, run: str) -> Response:
    """Return what was planned."""
    serving(request).part(Visits).count += 1

    def make(opened: Run) -> dict[str, Any]:
        return json.loads(opened.folder.plan.read_text())["steps"][0]["systems"].get("window", {})

    return serving(request).answer_of(request, run, make)
