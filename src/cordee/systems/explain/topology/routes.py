"""Where a run sits on the network, for pages."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from cordee.core.web.models import Answer
from cordee.systems.explain.topology.views import view_of_run
from cordee.telemetry.shown.server_parts import serving

router = APIRouter(prefix="/api/runs/{run}", tags=["judged"])


class TopologyAnswer(Answer):
    """Where a run sits on the network."""

    nodes: int
    ranks: int
    switches_spanned: int | None = Field(description="Null where the network is not known.")
    least_possible: int | None
    levels: list[dict[str, Any]] = Field(description="`level`, `spanned`, `least_possible`, `there`, `largest`, ...")
    hops: dict[str, Any] = Field(description="Switches between two nodes: `mean`, `most`, `known_pairs`.")
    edges: dict[str, dict[str, Any]] = Field(description="By dimension: `pairs`, and shares that cross, by level.")
    missing: list[dict[str, str]] = Field(description="`what`, the `line` to add, and `where`.")
    picture: str = Field(description="SVG.")


@router.get("/topology", response_model=TopologyAnswer)
def topology(
    request: Request,
    run: str,
    filtered: Annotated[str, Query(alias="filter", max_length=1000, description="As `dp=0,pp=6-7`.")] = "",
    colour: Annotated[str, Query(max_length=200, description="A dimension, `state`, `job`, or a metric.")] = "",
) -> Response:
    """Return switches and groups spanned, neighbours that cross, and the picture."""

    def make(opened: Any) -> dict[str, Any]:
        view = view_of_run(opened, filtered=filtered)
        document = {key: value for key, value in view.document().items() if key != "placed"}
        return {**document, "picture": view.svg(colour or None)}

    return serving(request).answer_of(request, run, make)
