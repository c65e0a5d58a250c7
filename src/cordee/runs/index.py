"""All runs below a folder: listed from their journals, found by id, the beginning of one, name, path or `last`.

The cache `.index.json` saves replaying journals that have not changed. It is derived: a damaged one is rebuilt, a folder
that cannot be written is read without it.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from cordee.core.errors import RunFolderError, RunNotFound
from cordee.core.words import alike
from cordee.machine.foreign_files import LIMIT_BYTES, parse_json, regular_below
from cordee.runs.children import FOLDER as CHILDREN
from cordee.runs.children import child_folder, read_graph
from cordee.runs.folder import RunFolder, write_atomically
from cordee.runs.journal import read_journal
from cordee.runs.state import replay

CACHE = ".index.json"
SCHEMA = "cordee.index/1"

_ID = re.compile(r"^(?P<name>.+)-(?P<stamp>\d{8}T\d{6}Z)-[a-z]{4}$")


@dataclass
class RunSummary:
    """One line about a run; times are epoch seconds. `state` is `unreadable` when its journal cannot be read.

    Attributes:
        kind: `run`, or `recording` for what `cordee record` left.
    """

    id: str
    name: str
    state: str
    submitted_at: float | None = None
    started_at: float | None = None
    ended_at: float | None = None
    nodes: int = 0
    step: int | None = None
    total: int | None = None
    restarts: int = 0
    exit_code: int | None = None
    reason: str = ""
    folder: str = ""
    kind: str = "run"
    backend: str = ""


def list_runs(parent: str | Path, *more: str | Path) -> list[RunSummary]:
    """Return a summary of every run in `parent` and `more`, the oldest first; none in a folder that is not there."""
    if more:
        found = [summary for folder in (parent, *more) for summary in list_runs(folder)]
        return sorted(found, key=lambda summary: _order(Path(summary.folder).parent, summary.id))
    summaries = []
    for folder, summary in kept_of_runs(Path(parent), CACHE, SCHEMA, lambda of: asdict(_summarise(of)), _is_summary):
        summaries.append(RunSummary(**{**summary, "folder": str(folder.root)}))
    return summaries


def kept_of_runs(
    parent: Path,
    cache: str,
    schema: str,
    make: Callable[[RunFolder], dict[str, Any]],
    may_be_kept: Callable[[Any], bool],
) -> list[tuple[RunFolder, dict[str, Any]]]:
    """Return what is made of every run in `parent`, the oldest first; made again only where its journal has changed.

    Args:
        cache: the file where it is kept; a name is one in `parent`.
        schema: of that file.
        make: makes it of a run's folder.
        may_be_kept: whether something that was made, or read, is whole.
    """
    cached = _read_cache(parent / cache, schema)
    entries: dict[str, Any] = {}
    found = []
    for run_id in _run_ids(parent):
        folder = RunFolder(parent / run_id)
        stamp, entry = _stamp(folder.journal), cached.get(run_id)
        if not (
            isinstance(entry, dict) and stamp and entry.get("stamp") == stamp and may_be_kept(entry.get("summary"))
        ):
            entry = {"stamp": stamp, "summary": make(folder)}
        entries[run_id] = entry
        found.append((folder, entry["summary"]))
    if entries != cached:
        with suppress(RunFolderError):
            write_atomically(parent / cache, json.dumps({"schema": schema, "runs": entries}))
    return found


def find_run(name: str, parent: str | Path, *more: str | Path) -> RunFolder:
    """Return the run in `parent` or `more` that `name` means.

    Args:
        name: a path, an id, `last`, a job's name (its newest run) or the beginning of one id.

    Raises:
        RunNotFound: no run answers to it, or several do; carries the nearest ids.
        RunFolderError: it is a link that another user made.
    """
    if os.sep in name or name in (".", ".."):
        folder = RunFolder(Path(name).resolve())
        if folder.exists():
            return folder
        above, _, last = name.rpartition(os.sep)
        try:
            holder = _find_run(above, parent, *more) if above and os.sep not in above else folder
            graph = read_graph(holder)
        except RunNotFound:
            graph = None
        for child in graph.children if graph is not None else ():
            if last in (child.name, child.run):
                return child_folder(holder, child)
        raise RunNotFound("this is no run folder", given=name, allowed="a folder with plan.json and journal/ in it")
    found = _find_run(name, parent, *more)
    check_link(found.root)
    return found


def _find_run(name: str, *folders: str | Path) -> RunFolder:
    parents = {run_id: Path(folder) for folder in folders for run_id in _run_ids(Path(folder))}
    ids = sorted(parents, key=lambda run_id: _order(parents[run_id], run_id))
    if name in ids:
        return RunFolder(parents[name] / name)
    if not ids:
        raise RunNotFound(f"there are no runs in {folders[0]}", given=name, next="`cordee run` starts one")
    if name in ("last", ""):
        return RunFolder(parents[ids[-1]] / ids[-1])
    named = [run_id for run_id in ids if job_name(run_id) == name]
    if named:
        return RunFolder(parents[named[-1]] / named[-1])
    matches = [run_id for run_id in ids if run_id.startswith(name)]
    if len(matches) == 1:
        return RunFolder(parents[matches[0]] / matches[0])
    if RunFolder(name).exists():
        return RunFolder(Path(name).resolve())
    if matches:
        raise RunNotFound("several runs begin like this", given=name, allowed=matches[-5:], next="give more of the id")
    nearest = alike(name, ids, cutoff=0.3) or ids[-3:]
    below = _child(name, parents)
    if below is not None:
        return below
    raise RunNotFound(
        "no run answers to this name",
        given=name,
        allowed=[*nearest, "last"],
        next="`cordee runs` lists the runs; --runs DIR or CORDEE_RUNS looks elsewhere",
    )


def _child(name: str, parents: dict[str, Path]) -> RunFolder | None:
    """Return the child of this id, below whichever run it is."""
    return next(
        (
            RunFolder(folder / run_id / CHILDREN / name)
            for run_id, folder in parents.items()
            if RunFolder(folder / run_id / CHILDREN / name).exists()
        ),
        None,
    )


def check_link(root: Path) -> None:
    """Refuse a link to a run that somebody else made: in a folder that all share it may lead anywhere.

    Raises:
        RunFolderError: it is one.
    """
    try:
        status = root.lstat()
    except OSError:
        return
    if stat.S_ISLNK(status.st_mode) and status.st_uid != os.geteuid():
        raise RunFolderError(
            "the run's folder is a link that another user made",
            given=str(root),
            allowed="a folder, or a link of your own",
            next="give the path that it leads to, if you trust it",
        )


def _run_ids(parent: Path) -> list[str]:
    """Return the ids of the runs in `parent`, the oldest first."""
    try:
        with os.scandir(parent) as entries:
            found = [entry.name for entry in entries if entry.is_dir() and RunFolder(entry.path).exists()]
    except OSError:
        return []
    return sorted(found, key=lambda run_id: _order(parent, run_id))


def _order(parent: Path, run_id: str) -> tuple[str, int, str]:
    """Return the key that puts runs in the order of their making: the id's second, then the folder's plan or journal."""
    match = _ID.match(run_id)
    made = 0
    for path in (parent / run_id / "plan.json", parent / run_id / "journal"):
        try:
            made = path.stat().st_mtime_ns
            break
        except OSError:
            continue
    return (match.group("stamp") if match else "", made, run_id)


def job_name(run_id: str) -> str:
    """Return the name of the job that a run was made of, as its id says."""
    match = _ID.match(run_id)
    return match.group("name") if match else run_id


def _summarise(folder: RunFolder) -> RunSummary:
    summary = RunSummary(folder.id, job_name(folder.id), "unreadable")
    try:
        check_link(folder.root)
        events = read_journal(folder.journal)
        state = replay(events, folder.id)
    except RunFolderError as error:
        summary.reason = error.text
        return summary
    active = sum(1 for node in state.nodes if node.role == "active")
    submitted = next((event for event in events if event["event"] == "submitted"), {})
    asked, summary.backend = submitted.get("nodes"), str(submitted.get("backend", ""))
    summary.state, summary.exit_code = state.state, state.exit_code
    summary.submitted_at, summary.started_at, summary.ended_at = state.submitted_at, state.started_at, state.ended_at
    summary.nodes = active or (asked if isinstance(asked, int) else 0)
    summary.step, summary.total, summary.restarts = state.step, state.total, state.restarts
    summary.reason = state.reason
    return summary


def _stamp(journal: Path) -> list[list[Any]]:
    try:
        with os.scandir(journal) as entries:
            files = [(entry.name, entry.stat()) for entry in entries if entry.name.endswith(".jsonl")]
    except OSError:
        return []
    return sorted([name, status.st_size, status.st_mtime_ns] for name, status in files)


def _is_summary(kept: Any) -> bool:
    names = {field.name for field in fields(RunSummary)}
    return isinstance(kept, dict) and set(kept) == names and kept["state"] != "unreadable"


def _own_json(path: Path) -> Any:
    """Return the document in a file of one's own: what others left in a folder that all share may say anything."""
    with open(path, "rb", opener=regular_below(path.parent)) as file:
        return parse_json(file.read(LIMIT_BYTES)) if os.fstat(file.fileno()).st_uid == os.geteuid() else None


def _read_cache(path: Path, schema: str) -> dict[str, Any]:
    try:
        document = _own_json(path)
        if document["schema"] != schema or not isinstance(document["runs"], dict):
            return {}
        return document["runs"]
    except (OSError, ValueError, KeyError, TypeError):
        return {}
