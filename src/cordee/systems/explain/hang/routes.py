"""A run's hangs, and where its ranks stood, for pages."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response
from pydantic import Field

from cordee.core.web.models import Answer, Moment
from cordee.systems.explain.hang.evidence import read_hang
from cordee.systems.explain.hang.views import HangView, hangs_document
from cordee.telemetry.shown.server_parts import serving

router = APIRouter(prefix="/api/runs/{run}/hangs", tags=["judged"])


class HangList(Answer):
    """The hangs of a run, and the questions where its ranks stood."""

    hangs: list[dict[str, Any]] = Field(
        description="The newest first: `number`, `attempt`, `since`, `declared_at`, `after_s`, `action`, `busy`, `asked` (somebody "
        "wanted to know; whether it hung is not said), `world`, `standing`, `ended`, and `causes`: findings with `ranks`, `nodes`, `where`."
    )
    total: int = Field(description="How many there are with those that are not listed.")


class HangAnswer(Answer):
    """Where the ranks of a run stood in one hang. Ranks are given as text: `0-3, 8 and 90 more`."""

    number: int
    attempt: int
    at: Moment
    asked: bool
    world: int
    stacks: int = Field(description="Of how many ranks there is a stack.")
    without: dict[str, Any] = Field(description="Of whom there is none: `count`, `ranks`.")
    ended: dict[str, Any] = Field(description="Who had ended before: `count`, `ranks`, `codes`.")
    tree: dict[str, Any] = Field(
        description="Equal stacks of all ranks, merged: `file`, `line`, `function`, `library`, `count`, `ranks`, `here`, `below`, `more`."
    )
    alike: list[dict[str, Any]] = Field(description="Ranks whose processes do the same, the fewest first.")
    alike_total: int
    collectives: list[dict[str, Any]] = Field(description="What does not end, and who has not called it.")
    collectives_total: int
    nodes: list[dict[str, Any]] = Field(description="Of which anything is said: `full`, `hanging`, `kernel_log`.")
    nodes_total: int


@router.get("", response_model=HangList)
def hangs(request: Request, run: str) -> Response:
    """Return the newest hangs of a run with their causes."""
    return serving(request).answer_of(
        request, run, lambda opened: hangs_document(opened.folder.root, opened.state.findings)
    )


@router.get("/{number}", response_model=HangAnswer)
def hang(
    request: Request, run: str, number: Annotated[int, Path(ge=1, description="Of the hang, from 1.")]
) -> Response:
    """Return where all ranks stood: the merged stacks, the state of their processes, what they waited in."""
    return serving(request).answer_of(
        request, run, lambda opened: HangView(read_hang(opened.folder.root, number)).page_document()
    )
