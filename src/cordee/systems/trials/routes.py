"""The trials of a sweep, and the tasks of a farm, for pages."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import Field

from cordee.core.web.models import Answer
from cordee.systems.trials.pictures import pictures
from cordee.systems.trials.shown import Farm
from cordee.systems.trials.sweeps import Sweep, is_sweep
from cordee.telemetry.shown.server_parts import serving

router = APIRouter(prefix="/api/runs/{run}", tags=["judged"])
_MOST = 1000


class TasksAnswer(Answer):
    """What became of the tasks or trials of a run."""

    tasks: int
    done: int
    failed: int
    running: int
    seconds: float | None
    goal: str | None = Field(description="Of a sweep; null: it is a farm.")
    importance: dict[str, float] | None = Field(
        description="By parameter, the share of the differences that it explains."
    )
    front: list[int] | None = Field(description="Of several goals: the trials that no other one beats.")
    best: dict[str, Any] | None
    rows: list[dict[str, Any]] = Field(description="At most 1,000: the best trials first, of a farm those that failed.")
    pictures: list[dict[str, str]] = Field(description="`title` and `svg`.")


@router.get("/tasks", response_model=TasksAnswer)
def tasks(request: Request, run: str) -> Response:
    """Return what became of the tasks or trials of a run, and of a sweep pictures of what mattered."""

    def make(opened: Any) -> dict[str, Any]:
        folder = opened.folder
        farm = Farm(folder.root)
        counts = farm.document(folder.id)
        if not is_sweep(folder):
            rows = sorted(farm.rows(), key=lambda row: row["state"] != "failed")[:_MOST]
            return {**counts, **dict.fromkeys(("goal", "importance", "front", "best")), "rows": rows, "pictures": []}
        sweep = Sweep(folder)
        told = {key: value for key, value in sweep.document().items() if key != "trials"}
        drawn = [{"title": title, "svg": svg} for title, svg in pictures(sweep)]
        return {**counts, **told, "rows": sweep.in_order()[:_MOST], "pictures": drawn}

    return serving(request).answer_of(request, run, make)
