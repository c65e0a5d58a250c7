"""What every command prints in the same way."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from cordee.findings import Finding
    from cordee.runs.state import RunState

SHOW_SCHEMA = "cordee.run/1"


def print_json(document: dict[str, Any]) -> None:
    """Print one JSON document on standard output."""
    sys.stdout.write(json.dumps(document, indent=2, default=str, allow_nan=False) + "\n")
    sys.stdout.flush()


def print_findings(findings: list[Finding]) -> None:
    """Print findings on standard error, the grave ones last, where the eye is."""
    order = {"info": 0, "warn": 1, "error": 2}
    for finding in sorted(findings, key=lambda finding: order.get(finding.severity, 2)):
        click.echo(str(finding), err=True)


def run_document(folder: Any, state: RunState) -> dict[str, Any]:
    """Return the document of `run`, `show` and `resume`."""
    from cordee.insight.phases import segment_times
    from cordee.report.container import container_of
    from cordee.report.segments import segment_document
    from cordee.submit import step_of

    report = folder.report / "index.html"
    return {
        "schema": SHOW_SCHEMA,
        "run": folder.id,
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
        "environment": container_of(step_of(folder)),
        "folder": str(folder.root),
        "report": str(report) if report.is_file() else None,
        "step": state.step,
        "total": state.total,
        "checkpoint": state.checkpoint,
        "reason": state.reason,
        "text": state.text,
        "failures": state.failures,
        "findings": [finding.document() for finding in state.findings],
        "attempt": state.attempt,
        "job": state.job,
        "chain": state.chain,
        "segment_list": [segment_document(times) for times in segment_times(state)],
        "submitted_at": state.submitted_at,
        "started_at": state.started_at,
        "ended_at": state.ended_at,
    }
