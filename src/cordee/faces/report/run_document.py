"""The document of one run: what `cordee run`, `show`, `resume` print with `--json`, and what pages begin with."""

from __future__ import annotations

from typing import Any

from cordee.backends.reconcile import known_until
from cordee.faces.report.container import container_of
from cordee.faces.report.segments import began_from, segment_document
from cordee.job.submit import step_of
from cordee.runs.children import child_documents, child_states, parent_of, read_graph, told_by_parent
from cordee.runs.folder import RunFolder
from cordee.runs.state import RunState
from cordee.telemetry.node.recording import is_recorded
from cordee.telemetry.shown.view import views_of
from cordee.telemetry.store.phases import segment_times

SCHEMA = "cordee.run/1"


def family(folder: RunFolder, state: RunState) -> dict[str, Any]:
    """Return `parent`, an id, and `children[]`, each with what its own journal says; neither where there is none.

    A child that waits and will not start has `state` and `text`, too, as its parent tells them.
    """
    found: dict[str, Any] = {}
    above = parent_of(folder)
    if above is not None:
        found["parent"] = above.id
        found |= told_by_parent(folder) if state.state == "queued" and not state.segments else {}
    graph = read_graph(folder)
    if graph is not None:
        own = child_states(folder, graph)
        found["children"] = child_documents(folder, graph, state, own)
    return found


def run_document(folder: RunFolder, state: RunState) -> dict[str, Any]:
    """Return a run's document: state, nodes with verdicts, ranks, segments, failures, findings; times are epoch seconds."""
    report, step = folder.report / "index.html", step_of(folder)
    return {
        "schema": SCHEMA,
        "run": folder.id,
        "kind": "recording" if is_recorded(folder) else "run",
        "state": state.state,
        "exit_code": state.exit_code,
        "segments": state.segments,
        "restarts": state.restarts,
        "nodes": [
            {
                "node": node.node,
                "verdict": node.verdict,
                "role": node.role,
                "ranks": node.ranks,
                "results": node.results,
            }
            for node in state.nodes
        ],
        "ranks": [vars(rank) for rank in state.ranks],
        "environment": container_of(step),
        "data_sets": step.get("data", []),
        "folder": str(folder.root),
        "report": str(report) if report.is_file() else None,
        "step": state.step,
        "total": state.total,
        "checkpoint": state.checkpoint,
        "began_from": began_from(state)[0],
        "began_from_run": began_from(state)[1],
        "reason": state.reason,
        "text": state.text,
        "failures": state.failures,
        "findings": [{**finding.document(), **finding.place()} for finding in state.findings],
        "attempt": state.attempt,
        "job": state.job,
        "chain": state.chain,
        **{key: value for view in views_of(state, step) for key, value in view.document().items()},
        "segment_list": [segment_document(times) for times in segment_times(state, known_until(folder, state))],
        **family(folder, state),
        "submitted_at": state.submitted_at,
        "started_at": state.started_at,
        "ended_at": state.ended_at,
    }
