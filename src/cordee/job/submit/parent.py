"""The submit seam of a run with children: they stand for it until it is its own turn."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from typing import Any

from cordee.core.errors import CordeeError, RunFolderError
from cordee.job.submit._base import Standing, StartsChildren, SubmitsAfter, SubmitsTogether, Submitter
from cordee.job.submit.factory import plan_of, submitter
from cordee.job.submit.settle import settle
from cordee.runs.children import ChildEnd, Graph, advance, child_folder, children_ended, read_graph
from cordee.runs.folder import RunFolder
from cordee.runs.journal import client_journal, read_journal
from cordee.runs.state import RunState, replay

_DONE = ("finished", "skipped")
_COMES_BACK_S = 60.0


class ParentSubmitter(Submitter):
    """Starts what may start of a run's children, and asks about those that run.

    Args:
        own: what the run itself would be handed to.
    """

    def __init__(self, own: Submitter) -> None:
        self._own = own
        self.script_name, self.poll_s, self.keeps_place = own.script_name, own.poll_s, own.keeps_place
        self._places: dict[str, Submitter] = {}
        self._troubles: dict[str, tuple[float, str]] = {}

    def script(self, folder: RunFolder, plan: dict[str, Any]) -> str:
        """Return what is submitted of the run itself."""
        return self._own.script(folder, plan)

    def submit(self, folder: RunFolder, plan: dict[str, Any]) -> str:
        """Start the children that may start, and return the place's name of the first; the run itself where they are done."""
        graph = _graph(folder)
        state = replay(read_journal(folder.journal), folder.id)
        done = {entry["name"] for entry in state.children if entry["state"] in _DONE}
        if graph.main and len(done) == len(graph.children):
            return self._own.submit(folder, plan)
        try:
            at_once = handed_over_together if isinstance(self._own, SubmitsTogether) else None
            advance(folder, client_journal(folder.journal), handed_over, at_once)
        except CordeeError as error:
            if not replay(read_journal(folder.journal), folder.id).ended:
                journal, code = client_journal(folder.journal), error.exit_code
                journal.append("ended", state="failed", exit_code=code, reason="refused", text=error.text)
            raise
        state = replay(read_journal(folder.journal), folder.id)
        placed = [entry["job"] for entry in state.children if entry["job"]]
        together = graph.main and any(child.about.get("submit") == "together" for child in graph.children)
        if together and placed and state.job is None and not state.ended and isinstance(self._own, SubmitsAfter):
            self._own.submit_after(folder, plan, placed[0])
        if isinstance(self._own, StartsChildren) and placed and not state.ended:
            self._own.start_children(folder)
        return placed[0] if placed else ""

    def standings(self, folders: list[RunFolder], *, age_s: float = 30.0) -> list[Standing]:
        """Return where the runs stand: with a child that runs, else with one that waits, else by themselves."""
        return [self._told(folder, self._standing(folder, age_s)) for folder in folders]

    def _told(self, folder: RunFolder, standing: Standing) -> Standing:
        """Return the standing, with why nothing starts what comes next, where that is so."""
        if standing.state in ("gone", "unknown") or not isinstance(self._own, StartsChildren):
            return standing
        graph, state = _graph(folder), _state(folder)
        to_come = len(state.children) < len(graph.children) or (graph.main and state.job is None)
        if not to_come or state.ended or state.cancel_requested:
            return standing
        asked_at, why = self._troubles.get(folder.id, (0.0, ""))
        if time.monotonic() - asked_at > self.poll_s:
            why = self._own.starts_nothing(folder)
            self._troubles[folder.id] = time.monotonic(), why
        if not why:
            return standing
        said = f"what comes next starts only when somebody looks (`cordee watch {folder.id}`): {why}"
        return replace(standing, reason="; ".join(filter(None, (standing.reason, said))))

    def _standing(self, folder: RunFolder, age_s: float) -> Standing:
        active = self._active(folder, age_s)
        counts = Counter(standing.state for standing in active)
        for wanted in ("running", "suspended", "waiting", "held", "unknown"):
            for standing in active:
                if standing.state == wanted:
                    return replace(standing, reason=_said_of_all(standing, counts))
        own = self._own.standings([folder], age_s=age_s)[0]
        if own.state == "gone" and own.job is None and active and not _state(folder).ended:
            return replace(own, state="waiting", reason="what runs next of it is not in the queue yet")
        return own

    def _active(self, folder: RunFolder, age_s: float) -> list[Standing]:
        """Return where the children stand that were placed; the end of one that is gone is told to the graph."""
        graph = _graph(folder)
        state = replay(read_journal(folder.journal), folder.id)
        placed = {entry["name"] for entry in state.children if entry["state"] == "placed"}
        if state.ended:
            return []
        below = [child_folder(folder, child) for child in graph.children if child.name in placed]
        by_backend: dict[str, list[RunFolder]] = {}
        for each in below:
            by_backend.setdefault(plan_of(each)["backend"], []).append(each)
        found, ends = [], {}
        for backend, some in by_backend.items():
            place = self._places.setdefault(backend, submitter(backend))
            for each, standing in zip(some, place.standings(some, age_s=age_s), strict=True):
                found.append(standing)
                end = self._end_of(each, standing) if standing.state == "gone" else None
                if end is not None:
                    ends[each.id] = end
        children_ended(folder, ends, client_journal(folder.journal), handed_over)
        return found

    @staticmethod
    def _end_of(below: RunFolder, standing: Standing) -> ChildEnd | None:
        """Return the end of a child that could not tell the graph: it was killed, or its job is gone; None: it may yet be back."""
        may_be_back = standing.job is not None and not standing.final and standing.gone_s < _COMES_BACK_S
        own = _state(below) if may_be_back else settle(below, standing)
        if not own.ended and standing.job is None:
            text = "nothing runs it any more" + (f": {standing.reason}" if standing.reason else "")
            state = "cancelled" if own.cancel_requested else "failed"
            client_journal(below.journal).append("ended", state=state, exit_code=1, reason="gone", text=text)
            own = _state(below)
        return ChildEnd(own.state, own.exit_code, own.reason, own.text) if own.ended else None

    def cancel_waiting(self, folder: RunFolder) -> list[RunFolder]:
        """Take the children away that have not started yet, where the place does that for many at once, and return them."""
        return self._own.cancel_waiting(open_children(folder)) if isinstance(self._own, SubmitsTogether) else []

    def cancel(self, folder: RunFolder) -> None:
        """Take all of it away."""
        self.cancel_waiting(folder)
        for below in open_children(folder):
            submitter(plan_of(below)["backend"]).cancel(below)
        self._own.cancel(folder)


def handed_over(folder: RunFolder) -> str:
    """Hand a child, or a run itself, to its place."""
    plan = plan_of(folder)
    return submitter(plan["backend"]).submit(folder, plan)


def handed_over_together(folders: list[RunFolder]) -> dict[str, str]:
    """Hand children to their place as `handed_over` does, those with the first that it takes at once."""
    plans = [plan_of(folder) for folder in folders]
    place = submitter(plans[0]["backend"])
    if not isinstance(place, SubmitsTogether):
        return {folders[0].id: place.submit(folders[0], plans[0])}
    same = [index for index, plan in enumerate(plans) if plan["backend"] == plans[0]["backend"]]
    return place.submit_together([folders[index] for index in same], [plans[index] for index in same])


def _said_of_all(standing: Standing, counts: Counter[Any]) -> str:
    """Return what the children do that are in the queue, and what is to be said of one of them."""
    if sum(counts.values()) == 1:
        return standing.reason
    there = ", ".join(f"{counts[state]} {state}" for state in sorted(counts))
    return f"of its runs {there}" + (f"; {standing.reason}" if standing.reason else "")


def open_children(folder: RunFolder) -> list[RunFolder]:
    """Return the children of a run that were placed and have not ended; none where it has no children."""
    try:
        graph = read_graph(folder)
        state = replay(read_journal(folder.journal), folder.id)
    except RunFolderError:
        return []
    if graph is None:
        return []
    placed = {entry["name"] for entry in state.children if entry["state"] == "placed"}
    below = [child_folder(folder, child) for child in graph.children if child.name in placed]
    return [each for each in below if not _state(each).ended]


def _state(folder: RunFolder) -> RunState:
    return replay(read_journal(folder.journal), folder.id)


def _graph(folder: RunFolder) -> Graph:
    graph = read_graph(folder)
    if graph is None:
        raise RunFolderError("this run has no children", given=folder.id)
    return graph
