"""The report as one JSON document."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from cordee.report.data import ReportData

SCHEMA = "cordee.report/1"


def report_document(data: ReportData) -> dict[str, Any]:
    """Return the report's facts: times in seconds, shares 0-1, metrics as last, mean and extremes."""
    state = data.state
    return {
        "schema": SCHEMA,
        "run": data.folder.id,
        "state": state.state,
        "exit_code": state.exit_code,
        "reason": state.reason,
        "text": state.text,
        "segments": state.segments,
        "restarts": state.restarts,
        "repeated_steps": data.repeated_steps,
        "step": state.step,
        "total": state.total,
        "checkpoint": state.checkpoint,
        "command": data.step.get("tasks", {}).get("argv"),
        "phases": [asdict(share) for share in data.shares],
        "nodes": [asdict(node) for node in state.nodes],
        "ranks": [asdict(rank) for rank in state.ranks],
        "attempts": state.attempts,
        "failures": state.failures,
        "findings": [finding.document() for finding in state.findings],
        "metrics": {name: summary(curve.mean) for name, curve in data.curves.items()},
        "resources": _resources(data),
        "last_lines": {str(rank): lines for rank, lines in data.last_lines.items()},
        "missing": data.missing,
    }


def summary(values: list[float]) -> dict[str, float | None]:
    """Return first, last, mean and extremes of the values that are numbers; None for all when there are none."""
    known = [value for value in values if math.isfinite(value)]
    if not known:
        return {"first": None, "last": None, "mean": None, "least": None, "most": None}
    mean = sum(known) / len(known)
    return {"first": known[0], "last": known[-1], "mean": mean, "least": min(known), "most": max(known)}


def _resources(data: ReportData) -> dict[str, Any]:
    """Return, per group and metric, mean and maximum over time for each device; None where nothing was measured."""
    found: dict[str, Any] = {}
    for group, grid in data.grids.items():
        found[group] = {}
        for index, metric in enumerate(grid.metrics):
            devices = {}
            for place, device in enumerate(grid.devices):
                known = [float(value) for value in grid.values[index, :, place] if math.isfinite(value)]
                mean = sum(known) / len(known) if known else None
                devices[str(device)] = {"mean": mean, "most": max(known) if known else None, "samples": len(known)}
            found[group][metric] = {"unit": grid.units.get(metric), "devices": devices}
    return found
