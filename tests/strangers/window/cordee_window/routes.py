"""What its page asks for."""

from __future__ import annotations

import json
from typing import Any

from fastapi import APIRouter, Request

from cordee.faces.web.server import server_of

router = APIRouter(prefix="/api/runs/{run}")


@router.get("/window")
def window(request: Request, run: str) -> dict[str, Any]:
    """Return what was planned."""
    plan = json.loads(server_of(request).shelf.reading(run).folder.plan.read_text())
    return plan["steps"][0]["systems"].get("window", {})
