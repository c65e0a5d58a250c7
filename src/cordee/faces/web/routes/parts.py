"""Parts of a run: one node, one rank, what they printed, what was found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Request, Response

from cordee.core.errors import CordeeError
from cordee.faces.web.answers.errors import NotFound
from cordee.faces.web.answers.forms import document_answer, run_document_answer
from cordee.faces.web.answers.models import Findings, LogPage, NodePage, RankPage
from cordee.faces.web.runs import logs
from cordee.faces.web.runs.devices import describe_devices, facts_of
from cordee.faces.web.runs.document import findings_of
from cordee.faces.web.runs.logged import MOST_ROWS
from cordee.faces.web.runs.open_run import Reading
from cordee.faces.web.server import server_of
from cordee.runs.logframes import LogReader
from cordee.runs.state import RunState

router = APIRouter(prefix="/api/runs/{run}", tags=["parts"])

_LARGEST_RANK = (1 << 31) - 1
_MOST_NAMES = 300


@router.get("/nodes/{node}", response_model=NodePage)
def node(request: Request, run: str, node: Annotated[str, Path(max_length=255)]) -> Response:
    """Return one node: verdict with the results of its vetting, ranks, GPUs, the attempts it took part in."""
    reading = server_of(request).shelf.reading(run)
    state, _ = reading.state()
    known = next((entry for entry in state.nodes if entry.node == node), None)
    sampled = _sampled_nodes(reading) if known is None else {node}
    if known is None and node not in sampled:
        there = sorted({entry.node for entry in state.nodes} | sampled)
        raise NotFound("this run has no such node", given=node, allowed=there[:50] or "no node yet")
    document = (
        vars(known)
        if known is not None
        else {"node": node, "verdict": "unknown", "role": "active", "ranks": [], "results": []}
    )
    return document_answer(
        request, {**document, "gpus": _gpus(reading, state, node), "attempts": _attempts_on(reading, node)}
    )


@router.get("/ranks/{rank}", response_model=RankPage)
def rank(request: Request, run: str, rank: Annotated[int, Path(ge=0, le=_LARGEST_RANK)]) -> Response:
    """Return one rank: where it runs and ran, its place in the parallel layout, its GPUs, its last step."""
    reading = server_of(request).shelf.reading(run)
    state, _ = reading.state()
    with reading.run() as opened:
        known = facts_of(opened, "rank")
    places = reading.places(state.world_size).of
    now = next((entry for entry in state.ranks if entry.rank == rank), None)
    if now is None and str(rank) not in known:
        most = max([entry.rank for entry in state.ranks] + [int(one) for one in known if one.isdigit()], default=None)
        allowed = "no rank yet" if most is None else f"0 to {most}"
        raise NotFound("this run has no such rank", given=rank, allowed=allowed)
    facts, place = known.get(str(rank), {}), places.get(rank, {})
    document = {
        "rank": rank,
        "node": now.node if now is not None else facts.get("node"),
        "status": now.status if now is not None else "unknown",
        "pid": now.pid if now is not None else facts.get("pid"),
        "code": now.code if now is not None else None,
        "signal": now.signal if now is not None else None,
        "place": place.get("place"),
        "sizes": place.get("sizes"),
        "gpus": facts.get("gpus") or [],
        "facts": facts,
        "attempts": _attempts_of(reading, rank),
        "step": _last_step(reading, rank),
    }
    return document_answer(request, document)


@router.get("/logs", response_model=LogPage)
def log_page(
    request: Request,
    run: str,
    rank: Annotated[int | None, Query(ge=-1, le=_LARGEST_RANK, description="Only this rank; -1: set-up lines.")] = None,
    node: Annotated[str | None, Query(max_length=255, description="Only this node.")] = None,
    stream: Annotated[Literal["out", "err", "own"] | None, Query(description="Only this stream.")] = None,
    lines: Annotated[int, Query(ge=1, le=5000, description="About so many lines.")] = 200,
    before: Annotated[float | None, Query(description="Only lines finished before, UTC epoch seconds.")] = None,
    after: Annotated[float | None, Query(description="Only lines finished after, UTC epoch seconds.")] = None,
) -> Response:
    """Return what ranks printed, the newest page, or the one before a time."""
    reading = server_of(request).shelf.reading(run)

    def make() -> dict[str, Any]:
        reader = LogReader(reading.folder.logs, _places(reading))
        return logs.page(reader, lines, rank=rank, node=node, stream=stream, before=before, after=after)

    return run_document_answer(request, reading, make)


@router.get("/findings", response_model=Findings)
def findings(request: Request, run: str) -> Response:
    """Return findings, failures and what speaks against nodes, each with a link to the page that shows its evidence."""
    reading = server_of(request).shelf.reading(run)
    state, _ = reading.state()
    return document_answer(request, {"findings": findings_of(reading, state)})


def _sampled_nodes(reading: Reading) -> set[str]:
    with reading.run() as run:
        return {name for group in ("node", "rank", "gpu") for name in run.facts(group)}


def _gpus(reading: Reading, state: RunState, node: str) -> list[dict[str, Any]]:
    try:
        places = reading.places(state.world_size).of
        with reading.run() as run:
            if "gpu" not in run.groups():
                return []
            return [device for device in describe_devices(run, "gpu", state, places) if device["node"] == node]
    except CordeeError:
        return []


def _attempts_on(reading: Reading, node: str) -> list[int]:
    return [
        event["attempt"]
        for event in reading.journal.events
        if event["event"] == "attempt_started" and any(placed["node"] == node for placed in event["nodes"])
    ]


def _attempts_of(reading: Reading, rank: int) -> list[dict[str, Any]]:
    """Return the attempts that a rank took part in: where it ran, and how it ended there."""
    found: dict[int, dict[str, Any]] = {}
    for event in reading.journal.events:
        if event["event"] == "attempt_started":
            for placed in event["nodes"]:
                if rank in placed["ranks"]:
                    found[event["attempt"]] = {
                        "attempt": event["attempt"],
                        "node": placed["node"],
                        "code": None,
                        "signal": None,
                    }
        elif event["event"] == "rank_exited" and event.get("rank") == rank and event.get("attempt") in found:
            found[event["attempt"]] |= {"code": event.get("code"), "signal": event.get("signal")}
    return list(found.values())


def _last_step(reading: Reading, rank: int) -> int | None:
    """Return the newest step that a rank logged anything at; None also where that takes too long to find."""
    newest = None
    with reading.run() as run:
        names = run.logged()
        if (
            sum(int(run.series(name).ranks.sum()) for name in names[:_MOST_NAMES]) > MOST_ROWS
            or len(names) > _MOST_NAMES
        ):
            return None
        for rows in run.events().values():
            of_rank = rows[rows["rank"] == rank]
            if len(of_rank) and of_rank["step"][-1] >= 0:
                newest = max(newest or 0, int(of_rank["step"][-1]))
    return newest


def _places(reading: Reading) -> Callable[[int], Sequence[str]]:
    """Return what tells the nodes that a rank has ever run on."""

    def places(rank: int) -> list[str]:
        return [str(attempt["node"]) for attempt in _attempts_of(reading, rank)]

    reading.state()
    return places
