"""The document that a run's page begins with."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cordee.client.reserved import CHECKPOINT_BYTES, CHECKPOINT_SECONDS
from cordee.core.errors import CordeeError, RunFolderError
from cordee.core.registry import page_folders
from cordee.core.units import format_duration, parse_utc
from cordee.core.web.findings import finding_line
from cordee.faces.report.run_document import run_document
from cordee.faces.web.runs.evidence import failure_line, finding_times, node_lines
from cordee.faces.web.runs.logged import series_of
from cordee.faces.web.runs.missing_data import missing_of
from cordee.faces.web.runs.open_run import Reading
from cordee.job.submit import step_of
from cordee.runs.state import RunState
from cordee.telemetry.shown.view import views_of
from cordee.telemetry.store.logged import logged_findings
from cordee.telemetry.store.model import Series
from cordee.telemetry.store.reader import Run

if TYPE_CHECKING:
    import numpy as np

_RATE_EVENTS = 12
_SILENT_S = 120.0
_SAVES = (CHECKPOINT_SECONDS, CHECKPOINT_BYTES)


def page_document(reading: Reading, *, brief: bool = False) -> dict[str, Any]:
    """Return everything that `cordee show --json` tells, with phases, attempts, checkpoints, progress and what is missing.

    Args:
        brief: without ranks and the results of each node's vetting, which are long in large runs.
    """
    state, fault = reading.state()
    events = reading.journal.events
    document = run_document(reading.folder, state)
    state = replace(state, state=document["state"])
    if fault is not None:
        document["state"], document["text"] = "unreadable", fault.text
    document["rank_counts"] = dict(Counter(rank.status for rank in state.ranks))
    document["phases"] = [vars(phase) for phase in state.phases]
    document["attempts"] = state.attempts
    document["vetting"] = state.vetting
    document["progress"] = progress_of(events, state)
    document["findings"] = findings_of(reading, state)
    missing, checkpoints = _faults(reading, fault), []
    try:
        with reading.run() as run:
            checkpoints = checkpoints_of(events, run)
            groups, names = run.groups(), run.logged()
            missing += [{"what": one.what, "why": one.why, "next": one.next or None} for one in run.missing()]
        missing += missing_of(reading, state, groups, names, bool(reading.places(state.world_size).of))
    except (CordeeError, OSError, ValueError) as error:
        missing.append(
            {"what": "samples", "why": _said(error), "next": "the other files of the run may still be on their way"}
        )
    document["heard_at"] = reading.heard_at()
    document["checkpoints"], document["missing"] = checkpoints, missing + _silence(document)
    if brief:
        document.pop("ranks")
        for node in document["nodes"]:
            node.pop("results")
    document["folders"] = [name for name in page_folders() if (reading.folder.root / name).is_dir()]
    document["now"] = time.time()
    return document


def findings_of(reading: Reading, state: RunState) -> list[dict[str, Any]]:
    """Return findings, failures of attempts and what speaks against nodes, with links to their evidence."""
    times = finding_times(reading.journal.events)
    times += [0.0] * (len(state.findings) - len(times))
    nodes = {node.node for node in state.nodes}
    found = [finding_line(one.document(), at or None, nodes) for one, at in zip(state.findings, times, strict=False)]
    views = views_of(state, step_of(reading.folder))
    found += [finding_line(one.document()) for view in views for one in view.findings()]
    found += [failure_line(failure) for failure in state.failures]
    try:
        with reading.run() as run:
            found += [finding_line(one.document()) for one in logged_findings(run)]
            if state.ended:  # until then its page shows them: this document is asked for often
                found += [finding_line(one.document()) for view in views for one in view.findings_of_samples(run)]
        found += [finding_line(one.document()) for one in reading.places(state.world_size).findings]
    except CordeeError:
        pass  # the page says among what is missing why samples cannot be read
    return found + node_lines([vars(node) for node in state.nodes])


def progress_of(events: list[dict[str, Any]], state: RunState) -> dict[str, Any] | None:
    """Return how far the run is and how long the rest takes at the rate of its last reports; None: no rank said a step."""
    if state.step is None:
        return None
    reports: list[tuple[float, int]] = []
    for event in events:
        if event["event"] == "attempt_started":
            reports.clear()
        elif event["event"] == "progress" and isinstance(event.get("step"), int):
            reports.append((parse_utc(event["time"]), event["step"]))
    recent = reports[-_RATE_EVENTS:]
    rate = None
    if len(recent) > 1 and recent[-1][0] > recent[0][0]:
        rate = max(0.0, (recent[-1][1] - recent[0][1]) / (recent[-1][0] - recent[0][0]))
    left = state.total - 1 - state.step if state.total else None
    return {
        "step": state.step,
        "total": state.total,
        "ratio": min(1.0, (state.step + 1) / state.total) if state.total else None,
        "steps_per_s": rate,
        "remaining_s": max(0, left) / rate if rate and left is not None and not state.ended else None,
        "at": reports[-1][0] if reports else None,
    }


def checkpoints_of(events: list[dict[str, Any]], run: Run) -> list[dict[str, Any]]:
    """Return the complete checkpoints as they were seen, with the seconds and bytes of their saving where ranks told."""
    slowest, mean = series_of(run, _SAVES[0]), series_of(run, _SAVES[1])
    seconds = {} if slowest is None else _by_step(slowest, slowest.high)
    sizes = {} if mean is None else _by_step(mean, mean.mean * mean.ranks)
    found = []
    for event in events:
        if event["event"] == "checkpoint_seen":
            step = event.get("step")
            row = {"step": step, "name": str(event.get("name")), "time": parse_utc(event["time"])}
            row |= {"seconds": seconds.get(step), "bytes": sizes.get(step)}
            found.append(row)
    return found


def _by_step(series: Series, values: np.ndarray) -> dict[Any, float]:
    return dict(zip(series.steps.tolist(), values.tolist(), strict=True))


def _faults(reading: Reading, fault: RunFolderError | None) -> list[dict[str, Any]]:
    """Return what of the folder cannot be read."""
    found = []
    if fault is not None:
        found.append({"what": "the journal", "why": fault.text, "next": fault.next})
    if not reading.recording and not reading.folder.plan.is_file():
        found.append({"what": "the plan", "why": "plan.json is not there", "next": "copy the whole folder of the run"})
    return found


def _silence(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Return that a run which should be running gives no sign of life, if so."""
    silent = time.time() - (document["heard_at"] or time.time())
    if document["state"] != "running" or document["kind"] == "recording" or silent < _SILENT_S:
        return []
    why = f"nothing was written for {format_duration(silent)}: it may have been killed, or its file system hangs"
    return [{"what": "what happens now", "why": why, "next": f"`cordee resume {document['run']}` continues it"}]


def _said(error: Exception) -> str:
    return error.text if isinstance(error, CordeeError) else str(error)
