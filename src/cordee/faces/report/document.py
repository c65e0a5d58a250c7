"""The report as one JSON document."""

from __future__ import annotations

import math
import shlex
from dataclasses import asdict
from typing import Any

from cordee.core.stats import finite
from cordee.core.units import utc_text
from cordee.faces.report.container import container_of
from cordee.faces.report.data import ReportData
from cordee.faces.report.segments import began_from, segment_document

SCHEMA = "cordee.report/1"


def report_document(data: ReportData) -> dict[str, Any]:
    """Return the report's facts: times in seconds, shares 0-1, metrics as first, last, mean and extremes."""
    state = data.state
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "run": data.folder.id,
        "rendered_at": utc_text(data.now),
        "state": state.state,
        "exit_code": state.exit_code,
        "reason": state.reason,
        "text": state.text,
        "submitted_at": _moment(state.submitted_at),
        "started_at": _moment(state.started_at),
        "ended_at": _moment(state.ended_at),
        "seconds": data.seconds,
        "segments": state.segments,
        "restarts": state.restarts,
        "repeated_steps": data.lost.repeated_steps,
        "resumed_by_itself": data.lost.resumed_by_itself,
        "lost": {
            "between_attempts_s": data.lost.between_s,
            "repeated_s": data.lost.repeated_s,
            "between_segments_s": data.lost.queue_s,
        },
        "step": state.step,
        "total": state.total,
        "checkpoint": state.checkpoint,
        "checkpoints": data.checkpoints,
        "began_from": began_from(state)[0],
        "began_from_run": began_from(state)[1],
        "command": data.argv or None,
        "environment": environment(data),
        **{key: value for view in data.views for key, value in view.document().items()},
        "phases": [asdict(share) for share in data.shares],
        "segment_list": [segment_document(times) for times in data.segments],
        "vetting": state.vetting,
        "nodes": [asdict(node) for node in state.nodes],
        "ranks": [asdict(rank) | {"step": data.last_steps.get(rank.rank)} for rank in state.ranks],
        "attempts": state.attempts,
        "failures": state.failures,
        "findings": [finding.document() for finding in data.findings],
        "metrics": {name: summary(curve.mean) for name, curve in data.curves.items()},
        "resources": _resources(data),
        **dict.fromkeys(data.keys),
        **{section.key: section.document() for section in data.sections if section.key},
        "last_lines": {str(rank): lines for rank, lines in data.last_lines.items()},
        "missing": data.missing,
    }
    plain: dict[str, Any] = _plain(document)
    return plain


def environment(data: ReportData) -> dict[str, Any]:
    """Return what the plan says about where and with what the run worked; of variables only the names.

    Names only, because values may be secret and a report is passed on.
    """
    plan, step = data.plan, data.step
    tasks, checkpoint, request = (_table(step.get(name)) for name in ("tasks", "checkpoint", "request"))
    return {
        "back_end": plan.get("backend"),
        "cluster": plan.get("cluster"),
        "job_folder": plan.get("job_folder"),
        "working_folder": plan.get("workdir"),
        "code_digest": plan.get("code_digest"),
        "asked_for": {name: value for name, value in request.items() if name != "scheduler" and value is not None},
        "container": container_of(step),
        "path_prepend": tasks.get("path_prepend") or [],
        "variables": sorted(_table(tasks.get("env"))),
        "setup": tasks.get("setup") or [],
        "checkpoint_folder": checkpoint.get("path"),
        "resume": _resume(checkpoint.get("resume")),
        "retries": _table(step.get("restart")).get("retries"),
        "submitted": data.submitted or None,
    }


def _resume(given: Any) -> str | None:
    """Return the arguments of a restart as one text; `self` where the script finds its checkpoint by itself."""
    return given if isinstance(given, str) else shlex.join(map(str, given)) if given else None


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
    for group, usage in data.usage.items():
        found[group] = {}
        for at, metric in enumerate(usage.metrics):
            rows = zip(
                usage.devices, usage.mean[at].tolist(), usage.most[at].tolist(), usage.samples[at].tolist(), strict=True
            )
            devices = {
                str(device): {"mean": mean, "most": most, "samples": samples} for device, mean, most, samples in rows
            }
            found[group][metric] = {"unit": usage.units.get(metric), "devices": devices}
    return found


def _moment(seconds: float | None) -> str | None:
    return None if seconds is None else utc_text(seconds)


def _table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _plain(value: Any) -> Any:
    """Return `value` as JSON can hold it: numbers that are none become null."""
    if isinstance(value, float):
        return finite(value)
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, (str, int, bool)) else str(value)
