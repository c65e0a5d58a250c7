"""Runs below a run: which there are, what each comes after, how far they are, and which is to start next.

The parent holds the graph (`graph.json`, frozen) and its journal; each child is an ordinary run folder below it. Whoever ends a
child writes that into the parent's journal, and only then looks what may start: of several children that end at once the last
one sees them all. With `main` the parent itself is what the last children lead to: a test before the job.
"""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Callable, Iterator, Mapping, NamedTuple, Optional

from cordee.core.errors import CordeeError, RunFolderError
from cordee.core.findings import Finding
from cordee.core.parts import load
from cordee.machine.foreign_files import read_json
from cordee.runs.folder import RunFolder, write_atomically
from cordee.runs.journal import JournalWriter, client_journal, read_journal
from cordee.runs.plan import RunPlan
from cordee.runs.state import RunState, replay

GRAPH, FOLDER = "graph.json", "children"
SCHEMA = "cordee.graph/1"
_DONE = ("finished", "skipped")


class Child(NamedTuple):
    """One run of a graph.

    Attributes:
        name: in the graph.
        run: its id.
        after: the names of those that must be done before it starts.
        about: what the system that made the graph keeps of it.
    """

    name: str
    run: str
    after: tuple[str, ...] = ()
    about: Mapping[str, Any] = {}


class Graph(NamedTuple):
    """The runs below a run.

    Attributes:
        children: in an order in which each comes after those that it needs.
        main: whether the parent itself is started when all children are done.
        part: the `GraphPart` that judges them, as `module:object`; empty: nothing is judged.
    """

    children: tuple[Child, ...]
    main: bool = False
    part: str = ""

    def document(self) -> dict[str, Any]:
        """Return it as graph.json has it."""
        children = [{**child._asdict(), "after": list(child.after)} for child in self.children]
        return {"schema": SCHEMA, "children": children, "main": self.main, "part": self.part}


class ChildEnd(NamedTuple):
    """How a child has ended: `state` as of a run; `outcome` is what the graph's part says of it besides."""

    state: str
    exit_code: Optional[int] = None
    reason: str = ""
    text: str = ""
    outcome: Mapping[str, Any] = {}
    findings: tuple[Finding, ...] = ()


class GraphPart:
    """What a system knows of its graph. Called where a child starts or has ended: on a node, or by the command line."""

    def __init__(self, parent: RunFolder, graph: Graph) -> None:
        self.parent, self.graph = parent, graph

    def ended(self, child: Child, folder: RunFolder, end: ChildEnd) -> ChildEnd:
        """Return how a child has really ended: a run that left no output has failed."""
        return end

    def skipped(self, child: Child, entries: Mapping[str, Mapping[str, Any]]) -> Optional[ChildEnd]:
        """Return how a child that may start has ended before, None: it starts.

        Args:
            entries: of the children so far, as the run's state has them.
        """
        return None

    def starting(self, child: Child, entries: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
        """A child is about to be handed to its place; return what is to be kept of that, as its `outcome` until it ends."""
        return {}

    def main_starts(self) -> None:
        """The parent itself is about to be handed to its place."""


def read_graph(parent: RunFolder) -> Optional[Graph]:
    """Return the graph of a run, None where it has no children.

    Raises:
        RunFolderError: its file cannot be read.
    """
    path = parent.root / GRAPH
    try:
        document = read_json(path, parent.root)
        children = tuple(
            Child(each["name"], each["run"], tuple(each["after"]), each["about"]) for each in document["children"]
        )
        return Graph(children, document["main"], document["part"])
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunFolderError(
            f"the graph of children cannot be read: {error}", given=str(path), next="restore it from a copy"
        ) from error


def write_graph(parent: RunFolder, graph: Graph) -> None:
    """Write a run's graph.

    Raises:
        RunFolderError: it cannot be written.
    """
    write_atomically(parent.root / GRAPH, json.dumps(graph.document(), indent=1))


def child_folder(parent: RunFolder, child: Child) -> RunFolder:
    """Return the folder of a child."""
    return RunFolder(parent.root / FOLDER / child.run)


def parent_of(folder: RunFolder) -> Optional[RunFolder]:
    """Return the run that a run is a child of, None where it is no child."""
    above = folder.root.parent
    return RunFolder(above.parent) if above.name == FOLDER and (above.parent / GRAPH).is_file() else None


def child_states(parent: RunFolder, graph: Graph) -> dict[str, RunState]:
    """Return what the children's own journals say, by name; without those that cannot be read."""
    found = {}
    for child in graph.children:
        with suppress(RunFolderError):
            folder = child_folder(parent, child)
            found[child.name] = replay(read_journal(folder.journal), folder.id)
    return found


def child_documents(
    parent: RunFolder, graph: Graph, state: RunState, own: Mapping[str, RunState]
) -> list[dict[str, Any]]:
    """Return what is told of each child: how it is in the graph, and what its own journal says.

    One that will not start any more is `not started`, and its `text` says why.

    Args:
        state: the parent's.
        own: of the children, by name.
    """
    entries = {entry["name"]: entry for entry in state.children}
    found: list[dict[str, Any]] = []
    never: dict[str, str] = {}
    for child in graph.children:
        entry, below = entries.get(child.name, {}), own.get(child.name)
        why = "" if entry else _why_never(child, entries, never, state)
        if why:
            never[child.name] = why
        told = entry.get("state", "not started" if why else "waiting")
        if told == "placed" and below is not None:
            told = below.state
        known = below is not None and entry.get("state") != "skipped"
        began = below.started_at if known and below is not None else None
        ended = below.ended_at if known and below is not None else None
        found.append(
            {
                "name": child.name,
                "run": child.run,
                "kind": child.about.get("kind"),
                "after": list(child.after),
                "state": told,
                "exit_code": entry.get("exit_code"),
                "text": entry.get("text") or why,
                "segments": below.segments if known and below is not None else 0,
                "restarts": below.restarts if known and below is not None else 0,
                "job": below.job if known and below is not None else None,
                "started_at": began,
                "ended_at": ended,
                "outcome": dict(entry.get("outcome") or {}),
                "folder": str(child_folder(parent, child).root),
            }
        )
    return found


def told_by_parent(folder: RunFolder) -> dict[str, Any]:
    """Return `state` and `text` of a child that will not start, as its parent tells them; empty: it may, or is no child."""
    parent = parent_of(folder)
    with suppress(RunFolderError):
        graph = read_graph(parent) if parent is not None else None
        if parent is not None and graph is not None:
            state = replay(read_journal(parent.journal), parent.id)
            for child in child_documents(parent, graph, state, {}):
                if child["run"] == folder.id and child["state"] in ("not started", "skipped"):
                    return {"state": child["state"], "text": child["text"]}
    return {}


def _why_never(
    child: Child, entries: Mapping[str, Mapping[str, Any]], never: Mapping[str, str], state: RunState
) -> str:
    """Return why a child that has not started will not start any more; empty: it may."""
    for name in child.after:
        if name in never:
            return never[name]
        if entries.get(name, {}).get("state") in ("failed", "cancelled"):
            return f"{name} {entries[name]['state']}"
    return f"the run has ended: {state.state}" if state.ended else ""


Placing = Callable[[RunFolder], str]
# Hands runs to a place that takes many at once: the first of them at least; returns the place's names by run.
PlacingTogether = Callable[[list[RunFolder]], Mapping[str, str]]


def child_ended(parent: RunFolder, run: str, epoch: int, end: ChildEnd, place: Placing) -> ChildEnd:
    """Take in that a child is over, start what comes next, and return how it has ended. May be repeated.

    Args:
        run: the child's id.
        epoch: of the child's supervisor, 0: of the command line.
        end: how it has ended as its own run.
        place: hands a run to its place and returns the place's name for it.

    Raises:
        RunFolderError: the parent's graph or journal cannot be read.
        CordeeError: what comes next could not be placed.
    """
    graph = read_graph(parent)
    child = next((each for each in graph.children if each.run == run), None) if graph else None
    if graph is None or child is None:
        return end
    end = _part_of(parent, graph).ended(child, child_folder(parent, child), end)
    journal = _writer(parent, f"child-{child.name}-{epoch}")
    for finding in end.findings:
        journal.append("finding", finding=finding.document())
    _write_end(journal, child, end)
    advance(parent, journal, place)
    return end


def children_ended(parent: RunFolder, ends: Mapping[str, ChildEnd], journal: JournalWriter, place: Placing) -> None:
    """Take in that many children are over, as `child_ended` does of one, and start what comes next.

    Args:
        ends: by the children's ids.
        journal: the caller's, of the parent.

    Raises:
        RunFolderError, CordeeError: as `child_ended`.
    """
    graph = read_graph(parent)
    if graph is None or not ends:
        return
    part = _part_of(parent, graph)
    for child in graph.children:
        if child.run in ends:
            end = part.ended(child, child_folder(parent, child), ends[child.run])
            for finding in end.findings:
                journal.append("finding", finding=finding.document())
            _write_end(journal, child, end)
    advance(parent, journal, place)


def advance(
    parent: RunFolder, journal: JournalWriter, place: Placing, together: Optional[PlacingTogether] = None
) -> list[str]:
    """Start what may start, end the graph that is over, and return the names of what was started.

    Args:
        together: in place of `place`, where the place takes many children at once.

    Raises:
        RunFolderError: the parent's graph or journal cannot be read.
        CordeeError: something could not be placed; what was placed stays.
    """
    graph = read_graph(parent)
    if graph is None:
        return []
    part, started = _part_of(parent, graph), []
    with _one_at_a_time(parent):
        while True:
            state = replay(read_journal(parent.journal), parent.id)
            entries = {each["name"]: each for each in state.children}
            ready = [] if state.ended or state.cancel_requested else _ready(graph, entries)
            if not ready:
                break
            known: dict[str, dict[str, Any]] = {}
            for child in ready if together else ready[:1]:
                before = part.skipped(child, entries) or _finished_by_itself(part, parent, child, entries)
                if before is not None:
                    for finding in before.findings:
                        journal.append("finding", finding=finding.document())
                    _write_end(journal, child, before)
                    continue
                known[child.name] = dict(part.starting(child, entries))
                _again_where_it_has_ended(child_folder(parent, child))
            starting = [child for child in ready if child.name in known]
            folders = [child_folder(parent, child) for child in starting]
            jobs = together(folders) if together and folders else {folder.id: place(folder) for folder in folders}
            for child in starting:
                if child.run in jobs:
                    journal.append(
                        "child_placed",
                        waits=True,
                        child=child.name,
                        run=child.run,
                        job=jobs[child.run],
                        main=graph.main,
                        outcome=known[child.name],
                    )
                    started.append(child.name)
            journal.flush()
        if not state.ended:
            started += _conclude(parent, graph, state, entries, journal, part, place)
    return started


def _ready(graph: Graph, entries: Mapping[str, Mapping[str, Any]]) -> list[Child]:
    return [
        child
        for child in graph.children
        if child.name not in entries and all(entries.get(name, {}).get("state") in _DONE for name in child.after)
    ]


def _conclude(
    parent: RunFolder,
    graph: Graph,
    state: RunState,
    entries: Mapping[str, Mapping[str, Any]],
    journal: JournalWriter,
    part: GraphPart,
    place: Placing,
) -> list[str]:
    """Start the parent itself, or end it, when nothing of the graph runs or can start."""
    if any(entry["state"] not in (*_DONE, "failed", "cancelled") for entry in entries.values()):
        return []
    bad = [entry for entry in entries.values() if entry["state"] not in _DONE]
    cancelled = state.cancel_requested or any(entry["state"] == "cancelled" for entry in bad)
    if cancelled:
        first = next((entry for entry in bad if entry["state"] == "cancelled"), None)
        text = "cancelled" + (f" in {first['name']}" if first else "")
        journal.append("ended", state="cancelled", exit_code=1, reason="cancelled", text=text)
    elif bad:
        waiting = [child.name for child in graph.children if child.name not in entries]
        text = "; ".join(f"{entry['name']} failed: {entry['text']}" for entry in bad)
        text += f"; not started: {', '.join(waiting)}" if waiting else ""
        text += "; the job was not submitted" if graph.main else ""
        journal.append("ended", state="failed", exit_code=1, reason=bad[0]["reason"] or "child", text=text)
    elif graph.main:
        if not state.segments:
            part.main_starts()
        if state.job is None:
            place(parent)
            return [parent.id]
    else:
        done = sum(entry["state"] == "finished" for entry in entries.values())
        text = f"all {len(entries)} are done" + (f", {len(entries) - done} were before" if done < len(entries) else "")
        journal.append("ended", state="finished", exit_code=0, reason="finished", text=text)
    return []


def _write_end(journal: JournalWriter, child: Child, end: ChildEnd) -> None:
    code, outcome = end.exit_code, dict(end.outcome)
    journal.append(
        "child_ended",
        child=child.name,
        state=end.state,
        exit_code=code,
        reason=end.reason,
        text=end.text,
        outcome=outcome,
    )


def of_a_resume(folder: RunFolder) -> Callable[[str], None]:
    """Return what tells the parent of a run that is about to be resumed of its new job: what it knew of the run's end holds no more.

    Nothing is told where there is no parent, where that is over, or where it has heard of the run meanwhile.

    Raises:
        RunFolderError: the parent's graph or journal cannot be read.
    """
    parent = parent_of(folder)
    graph = read_graph(parent) if parent is not None else None
    child = next((each for each in graph.children if each.run == folder.id), None) if graph else None
    if parent is None or graph is None or child is None:
        return lambda job: None
    entries = _open_entries(parent)
    kept = {} if entries is None else dict(_part_of(parent, graph).starting(child, entries))

    def tell(job: str) -> None:
        now = _open_entries(parent)
        if entries is None or now is None or now.get(child.name) != entries.get(child.name):
            return
        client_journal(parent.journal).append(
            "child_placed", child=child.name, run=child.run, job=job, main=graph.main, outcome=kept
        )

    return tell


def _open_entries(parent: RunFolder) -> Optional[dict[str, dict[str, Any]]]:
    """Return what a run knows of its children, by name; None where it is over."""
    state = replay(read_journal(parent.journal), parent.id)
    return None if state.ended or state.cancel_requested else {each["name"]: each for each in state.children}


def _finished_by_itself(
    part: GraphPart, parent: RunFolder, child: Child, entries: Mapping[str, Mapping[str, Any]]
) -> Optional[ChildEnd]:
    """Return the end of a child that was resumed, and finished well, after its parent had ended; None: it has to start."""
    folder = child_folder(parent, child)
    own = replay(read_journal(folder.journal), folder.id)
    if own.state != "finished" or any(
        entries[name].get("ended_at", 0.0) > (own.ended_at or 0.0) for name in child.after
    ):
        return None
    judged = part.ended(child, folder, ChildEnd(own.state, own.exit_code, own.reason, own.text))
    return judged if judged.state == "finished" else None


def _again_where_it_has_ended(folder: RunFolder) -> None:
    """A child that has ended and starts again is resumed."""
    if replay(read_journal(folder.journal), folder.id).ended:
        _writer(folder, "client").append("resume_requested", by="its parent")


def _part_of(parent: RunFolder, graph: Graph) -> GraphPart:
    made: GraphPart = load(graph.part)(parent, graph) if graph.part else GraphPart(parent, graph)
    return made


def _writer(folder: RunFolder, name: str) -> JournalWriter:
    """Return a writer whose events sort after all that it can see."""
    events = read_journal(folder.journal)
    epoch = max((event["epoch"] for event in events), default=0)
    sequence = max((event["seq"] for event in events if event["epoch"] == epoch), default=-1) + 1
    return JournalWriter(folder.journal, name, epoch, sequence)


@contextmanager
def _one_at_a_time(parent: RunFolder) -> Iterator[None]:
    """Hold a lock on the graph. Where the file system has none, what is placed twice is noticed by whoever is second."""
    descriptor = os.open(parent.control / "graph.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def ended_child(folder: RunFolder, plan: RunPlan, epoch: int, end: ChildEnd, place: Placing) -> ChildEnd:
    """Tell the parent of a run that it is over, where it has one; what cannot be done is in the text of the end.

    Args:
        folder, plan: the run's.
        epoch, end, place: as in `child_ended`.
    """
    if not plan.parent:
        return end
    try:
        return child_ended(RunFolder(Path(plan.parent)), folder.id, epoch, end, place)
    except (CordeeError, OSError) as error:
        words = error.text if isinstance(error, CordeeError) else str(error)
        text = f"{end.text}; what comes after it was not started: {words}"
        return end._replace(text=text, findings=(Finding(text, "error", "graph", next="`cordee resume` the parent"),))
