"""What a run has sent where, for pages."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import Field

from cordee.core.web.models import Answer
from cordee.core.web.parameters import Points, Start, Stop
from cordee.systems.egress.views import rates_of, sums_of
from cordee.telemetry.shown.server_parts import serving

router = APIRouter(prefix="/api/runs/{run}", tags=["judged"])
_MOST = 500


class EgressAnswer(Answer):
    """What a run has sent and received."""

    methods: dict[str, str] = Field(description="What counted it, with what that counts and leaves out.")
    classes: dict[str, Any] = Field(description="By class `sent_bytes`, `received_bytes`, `connections`.")
    destinations: list[dict[str, Any]] = Field(description="Outside of the site, at most 500, most bytes sent first.")
    count: int = Field(description="How many destinations there are.")
    unclaimed_sent_bytes: int = Field(description="Sent by connections of which nobody knows whose they were.")
    remarks: list[str]
    sent: dict[str, Any] = Field(description="`times` (UTC seconds), `classes`: bytes/s by class, over all nodes.")
    limit: dict[str, Any] = Field(description="`most` bytes that may go to who is not listed, and `action` then.")


@router.get("/egress", response_model=EgressAnswer)
def egress(request: Request, run: str, start: Start = None, stop: Stop = None, points: Points = 600) -> Response:
    """Return what a run has sent by class and destination, how that was counted, and the rates over time."""

    def make(opened: Any) -> dict[str, Any]:
        document = sums_of(opened.facts("egress")).document()
        told, part = document["destinations"], opened.plan.get("steps", [{}])[0].get("systems", {}).get("egress") or {}
        limit = {key: part[key] for key in ("most", "action") if key in part}
        sent = rates_of(opened, start, stop, points)
        return {**document, "destinations": told[:_MOST], "count": len(told), "sent": sent, "limit": limit}

    return serving(request).answer_of(request, run, make)
