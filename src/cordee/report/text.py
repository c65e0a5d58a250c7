"""The report for the terminal: plain text, 80 columns where it can."""

from __future__ import annotations

import shlex

from cordee.report.data import ReportData
from cordee.report.document import summary
from cordee.units import format_duration, format_size

_BAR = 30


def render_text(data: ReportData) -> str:
    """Return the report as text."""
    parts = [_head(data), _phases(data), _nodes(data), _metrics(data), _resources(data), _troubles(data)]
    return "\n".join(part for part in parts if part)


def _head(data: ReportData) -> str:
    state = data.state
    lines = [f"{data.folder.id}", f"  {state.state}" + (f": {state.text}" if state.text else "")]
    argv = data.step.get("tasks", {}).get("argv")
    if argv:
        lines.append(f"  command      {shlex.join(argv)}")
    if state.started_at is not None and state.ended_at is not None:
        lines.append(f"  took         {format_duration(state.ended_at - state.started_at)}")
    if state.step is not None:
        lines.append(f"  step         {state.step}" + (f" of {state.total}" if state.total else ""))
    lines.append(f"  restarts     {state.restarts}, segments {state.segments}, steps done again {data.repeated_steps}")
    if state.checkpoint:
        lines.append(f"  checkpoint   {state.checkpoint}")
    return "\n".join(lines) + "\n"


def _phases(data: ReportData) -> str:
    lines = ["Where the time went"]
    for share in data.shares:
        bar = "█" * round(share.share * _BAR)
        lines.append(f"  {share.name:8} {format_duration(share.seconds):>12} {share.share:6.1%}  {bar}")
    return "\n".join(lines) + "\n" if data.shares else ""


def _nodes(data: ReportData) -> str:
    lines = ["Nodes"] if data.state.nodes else []
    for node in data.state.nodes:
        ranks = f"ranks {', '.join(map(str, node.ranks))}" if node.ranks else ""
        lines.append(f"  {node.node:16} {node.verdict:8} {node.role:9} {ranks}".rstrip())
        lines += [
            f"    {result['check']} {result['status']}: {result['evidence']}"
            for result in node.results
            if result["status"] != "pass"
        ]
    return "\n".join(lines) + "\n" if lines else ""


def _metrics(data: ReportData) -> str:
    lines = ["Logged by the ranks (mean over ranks)"] if data.curves else []
    for name, curve in data.curves.items():
        found = summary(curve.mean)
        if found["last"] is not None:
            lines.append(f"  {name:16} first {found['first']:.4g}  last {found['last']:.4g}  mean {found['mean']:.4g}")
    return "\n".join(lines) + "\n" if lines else ""


def _resources(data: ReportData) -> str:
    import numpy as np

    lines = ["Resource use (mean, greatest)"] if data.grids else []
    for group, grid in data.grids.items():
        for index, metric in enumerate(grid.metrics):
            known = grid.values[index][np.isfinite(grid.values[index])]
            if known.size and metric not in ("memory_total_bytes",):
                mean, most = _value(metric, float(known.mean())), _value(metric, float(known.max()))
                lines.append(f"  {group:5} {metric:34} {mean:>12} {most:>12}")
    return "\n".join(lines) + "\n" if lines else ""


def _value(metric: str, value: float) -> str:
    if "bytes" in metric:
        return format_size(value) + ("/s" if metric.endswith("per_second") else "")
    return f"{value:.1%}" if metric.endswith("busy_ratio") else f"{value:.2f}"


def _troubles(data: ReportData) -> str:
    lines = []
    attempts = [entry for entry in data.state.attempts if entry.get("outcome") not in (None, "finished")]
    lines += [f"  attempt {entry['attempt']} {entry['outcome']}: {entry.get('reason')}" for entry in attempts]
    lines += [f"  {finding.severity}: {finding.text}" for finding in data.state.findings]
    lines += [f"  not shown: {text}" for text in data.missing]
    if lines:
        lines.insert(0, "Troubles")
    if data.state.state == "failed":
        for rank, last in data.last_lines.items():
            lines += [f"Last lines of rank {rank}", *(f"  {text}" for text in last)]
    return "\n".join(lines) + "\n" if lines else ""
