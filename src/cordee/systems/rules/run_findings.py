"""The findings of runs, as far as rules count them over runs: read once of each run, and kept in the person's cache."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from cordee.core.backends import abilities
from cordee.core.errors import RunFolderError
from cordee.machine.foreign_files import read_json
from cordee.runs.folder import RunFolder
from cordee.runs.index import check_link, job_name, kept_of_runs
from cordee.runs.journal_follower import JournalFollower
from cordee.systems.rules.node.judge import about_event

SCHEMA = "cordee.run-findings/1"
_MOST, _MOST_NODES, _MOST_TEXT = 32, 16, 200
_LOST = "node-lost"
_HARDWARE = ("hardware-", _LOST)


class CountedFinding(NamedTuple):
    """A finding of a run as rules that count over runs look at it; `at` is UTC epoch seconds."""

    rule: str
    severity: str
    nodes: tuple[str, ...]
    text: str
    at: float


class CountedRun(NamedTuple):
    """A run with its findings.

    Attributes:
        run: its id.
        job: the job's name.
        cluster: where it ran.
        machines: whether its nodes may be other machines than the one that it was started on.
        findings: those that count, the first 32.
    """

    run: str
    job: str
    cluster: str
    machines: bool
    findings: tuple[CountedFinding, ...]


def counted_runs(parents: Iterable[Path]) -> Iterable[CountedRun]:
    """Yield all runs in some folders with their findings, the oldest of each folder first."""
    for parent in parents:
        for folder, kept in kept_of_runs(parent, str(kept_file(parent)), SCHEMA, _read, _is_kept):
            yield _counted(folder.id, kept)


def kept_file(parent: Path) -> Path:
    """Return where it is kept what the runs of a folder found: who only looks writes nothing into folders of runs."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cordee" / "findings"
    with contextlib.suppress(OSError):
        base.mkdir(parents=True, exist_ok=True, mode=0o700)
    return base / f"{hashlib.sha256(os.fsencode(parent.resolve())).hexdigest()[:20]}.json"


def counted_run(folder: RunFolder, findings: Iterable[Mapping[str, Any]] = ()) -> CountedRun:
    """Return a run as its journal and its plan are now, with more findings beside those of its journal.

    Args:
        findings: documents of findings, each with `at`.
    """
    more = (_kept(one["rule"], one["severity"], _nodes(one), one["text"], one["at"]) for one in findings)
    return _counted(folder.id, _read(folder, more))


def _counted(run: str, kept: dict[str, Any]) -> CountedRun:
    findings = (
        CountedFinding(str(rule), str(severity), tuple(map(str, nodes)), str(text), float(at))
        for rule, severity, nodes, text, at in kept["findings"]
    )
    return CountedRun(run, job_name(run), str(kept["cluster"]), bool(kept["machines"]), tuple(findings))


def _read(folder: RunFolder, more: Iterable[list[Any]] = ()) -> dict[str, Any]:
    """Return what is kept of a run; nothing of one whose journal cannot be read."""
    found: list[list[Any]] = []
    most_nodes = 0
    try:
        check_link(folder.root)
        for event in JournalFollower(folder, keep=False).stream():
            if event["event"] == "attempt_started" and isinstance(event.get("nodes"), list):
                most_nodes = max(most_nodes, len(event["nodes"]))
            elif event["event"] in ("finding", "node_lost") and len(found) < _MOST:
                about = about_event(event)
                rule, severity = (_LOST, "warn") if about["finding"] is None else (about["finding"], about["severity"])
                found = [one for one in found if one[3] != event.get("replaces")]
                found.append(_kept(rule, severity, about["place"].nodes, about["text"], about["at"]))
    except RunFolderError:
        found = []
    found += more
    for finding in found:
        if not finding[0].startswith(_HARDWARE) and len(finding[2]) >= max(1, most_nodes):
            finding[2] = []  # what all nodes of a run have says nothing of one of them
        finding[2] = finding[2][:_MOST_NODES]
    cluster, machines = _place(folder)
    return {"cluster": cluster, "machines": machines, "findings": found}


def _kept(rule: str, severity: str, nodes: Iterable[str], text: str, at: float) -> list[Any]:
    return [rule, severity, list(nodes), text[:_MOST_TEXT], at]


def _nodes(finding: Mapping[str, Any]) -> list[str]:
    nodes = (finding.get("evidence") or {}).get("nodes")
    return nodes if isinstance(nodes, list) else []


def _place(folder: RunFolder) -> tuple[str, bool]:
    """Return the cluster of a run, and whether its nodes are machines of their own; where nobody knows, they are."""
    try:
        plan = read_json(folder.plan, folder.root)
        backend = str(plan.get("backend", ""))
        return str(plan.get("cluster") or backend), abilities(backend).several_machines
    except (OSError, ValueError, AttributeError):
        return "", True


def _is_kept(kept: Any) -> bool:
    try:
        return bool(kept.keys() == {"cluster", "machines", "findings"} and _counted("", kept) and True)
    except (AttributeError, TypeError, ValueError):
        return False
