"""What a run's Flight Recorder dumps say, and its communication picture, for pages."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from cordee.core.web.models import Answer, Missing, Moment
from cordee.systems.explain.flight.volumes import ASSUMED
from cordee.telemetry.shown.computed_answers import ComputedDocuments
from cordee.telemetry.shown.server_parts import serving

router = APIRouter(prefix="/api/runs/{run}", tags=["judged"])


class FlightDocuments(ComputedDocuments):
    """What the dumps of runs say, read beside the server."""

    module, what, command = "cordee.systems.explain.flight.views", "reading the dumps", "cordee flight RUN --matrix"
    most_kept = 8


class FlightAnswer(Answer):
    """What a run's dumps say."""

    status: str = Field(description="`ready`, `computing` (ask again), or `impossible`: see `missing`.")
    computed_at: Moment
    flight: dict[str, Any] | None = Field(description="The document of `cordee flight --json`.")
    traffic: dict[str, Any] | None = Field(
        description="Who sent how much to whom: `by` (rank, node, nodes, ranks), `cells[{label, ranks, count, missing}]`, `dimensions[{name, groups, "
        "least_ranks, most_ranks, calls, bytes, wait_s}]`, `calls`, `uncounted`, `first`, `last`, `newest`, `clocks`."
    )
    dimension: str | None = Field(description="Whose matrices these are.")
    sent: list[list[float]] = Field(
        description="`[from, to, bytes]` by the places of cells; what is not there is 0 or not known."
    )
    waited: list[list[float]] = Field(description="`[who, for whom, seconds]`.")
    assumed: dict[str, str] = Field(description="By operation, the algorithm that bytes are counted for.")
    missing: list[Missing]


@router.get("/flight", response_model=FlightAnswer)
def flight(
    request: Request,
    run: str,
    dimension: Annotated[str, Query(max_length=200, description="Whose matrices; none: that of most bytes.")] = "",
) -> Response:
    """Return what the dumps of the newest attempt say, and one dimension's matrices; they are read beside the server."""
    server = serving(request)
    found, computing = server.part(FlightDocuments).ask(run, server.folder(run), ended=server.ended(run))
    answer: dict[str, Any] = {
        "status": "computing" if computing else "impossible",
        "computed_at": None if found is None else found.at,
        "flight": None,
        "traffic": None,
        "dimension": None,
        "sent": [],
        "waited": [],
        "assumed": ASSUMED,
        "missing": [],
    }
    if found is not None and found.document is None:
        answer["missing"] = [{"what": "what the dumps say", "why": found.why, "next": found.next}]
    elif found is not None and found.document is not None:
        traffic = found.document.get("traffic")
        answer |= {
            "status": "ready",
            "flight": {key: value for key, value in found.document.items() if key != "traffic"},
        }
        if traffic is not None:
            answer |= _one(traffic, dimension)
    return server.answer(request, answer)


def _one(traffic: dict[str, Any], dimension: str) -> dict[str, Any]:
    """Return the traffic with the matrices of one dimension only."""
    matrices = ("sent", "waited")
    dimensions = traffic["dimensions"]
    chosen = next((one for one in dimensions if one["name"] == dimension), dimensions[0] if dimensions else None)
    told = [{key: value for key, value in one.items() if key not in matrices} for one in dimensions]
    return {
        "traffic": {**traffic, "dimensions": told},
        "dimension": chosen["name"] if chosen else None,
        "sent": chosen["sent"] if chosen else [],
        "waited": chosen["waited"] if chosen else [],
    }
