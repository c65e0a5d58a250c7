"""One line about a run, for the list of runs."""

from __future__ import annotations

import re
from dataclasses import dataclass

from cordee.core.errors import RunFolderError
from cordee.runs.folder import RunFolder
from cordee.runs.journal import read_journal
from cordee.runs.state import replay
from cordee.telemetry.node.recording import is_recorded, read_recorders, recording_state

_ID = re.compile(r"^(?P<name>.+)-\d{8}T\d{6}Z-[a-z]{4}$")


@dataclass(frozen=True)
class Summary:
    """One run in a list; times are UTC epoch seconds. `state` is `unreadable` where the journal cannot be read.

    Attributes:
        kind: `run`, or `recording` for what `cordee record` left.
        findings: how many there are, by severity.
        folder: where it lies.
    """

    id: str
    name: str
    kind: str = "run"
    backend: str = ""
    state: str = "unreadable"
    submitted_at: float | None = None
    started_at: float | None = None
    ended_at: float | None = None
    nodes: int = 0
    ranks: int = 0
    step: int | None = None
    total: int | None = None
    restarts: int = 0
    exit_code: int | None = None
    reason: str = ""
    findings: dict[str, int] | None = None
    node_names: tuple[str, ...] = ()
    job: str | None = None
    folder: str = ""


def summarise(folder: RunFolder) -> Summary:
    """Return the line about a run or a recording; whatever is wrong with it is its `reason`."""
    match = _ID.match(folder.id)
    name = match["name"] if match else folder.id
    if is_recorded(folder):
        return _recording(folder, name)
    try:
        events = read_journal(folder.journal)
        state = replay(events, folder.id)
    except RunFolderError as error:
        return Summary(folder.id, name, reason=error.text, folder=str(folder.root))
    active = sorted(node.node for node in state.nodes if node.role == "active")
    asked = next((event.get("nodes") for event in events if event["event"] == "submitted"), None)
    severities = [finding.severity for finding in state.findings]
    return Summary(
        folder.id,
        name,
        state=state.state,
        submitted_at=state.submitted_at,
        started_at=state.started_at,
        ended_at=state.ended_at,
        nodes=len(active) or (asked if isinstance(asked, int) else 0),
        ranks=state.world_size,
        step=state.step,
        total=state.total,
        restarts=state.restarts,
        exit_code=state.exit_code,
        reason=state.reason,
        findings={severity: severities.count(severity) for severity in sorted(set(severities))},
        node_names=tuple(active),
        job=state.job,
        folder=str(folder.root),
    )


def _recording(folder: RunFolder, name: str) -> Summary:
    recorders, remarks = read_recorders(folder)
    state = recording_state(folder, recorders)
    nodes = tuple(sorted(node.node for node in state.nodes))
    return Summary(
        folder.id,
        name,
        kind="recording",
        state=state.state,
        submitted_at=state.submitted_at,
        started_at=state.started_at,
        ended_at=state.ended_at,
        nodes=len(nodes),
        ranks=len(state.ranks),
        exit_code=state.exit_code,
        reason="; ".join([state.reason, *remarks] if state.reason else remarks),
        findings={},
        node_names=nodes,
        job=state.job,
        folder=str(folder.root),
    )
