"""The report for the terminal: plain text, 80 columns."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from cordee.core.draw.clean import clean, one_line, ranges
from cordee.core.units import format_duration, format_size
from cordee.core.words import COLUMNS
from cordee.faces.report.container import container_words
from cordee.faces.report.data import ReportData
from cordee.faces.report.document import summary
from cordee.faces.report.segments import began_words, segment_words, worth_showing
from cordee.runs.state import NodeState, called
from cordee.telemetry.shown.section import Section
from cordee.telemetry.shown.view import RunView
from cordee.telemetry.shown.words import fact_lines, text_lines

_BAR = 30
_MOST_NODES = 16
_MOST_TROUBLES = 12
_LEFT_OUT = ("memory_total_bytes", "gpu_memory_total_bytes", "gpu_clock_sm_max_hertz")
_NOT_SHARES = ("cpu_cores_ratio",)


def render_text(data: ReportData) -> str:
    """Return the report as text, no line longer than 80 characters; what it leaves out is counted."""
    parts = [_head(data), _phases(data), _segments(data), _troubles(data), *_sections(data, "nodes")]
    parts += [_nodes(data), _metrics(data)]
    parts += [lines for place in ("phases", "logged", "use") for lines in _sections(data, place)]
    parts += [_resources(data), _last(data)]
    return clean("\n".join("\n".join(part) + "\n" for part in parts if part))


def _sections(data: ReportData, place: str) -> list[list[str]]:
    return [section.lines() for section in data.sections if section.place == place]


def _facts(said: Sequence[RunView | Section]) -> list[tuple[str, str]]:
    return [fact for one in said for fact in one.facts()]


def _head(data: ReportData) -> list[str]:
    state = data.state
    lines = text_lines(data.folder.id, "  ", "")
    lines += text_lines(state.state + (f": {state.text}" if state.text else ""))
    if data.advised:
        lines += fact_lines("advice", f"`cordee advise {data.folder.id}` says why, and what to change")
    if data.argv:
        lines += fact_lines("command", shlex.join(data.argv))
    if container_words(data.step):
        lines += fact_lines("environment", container_words(data.step))
    if data.seconds is not None:
        lines += fact_lines("took", format_duration(data.seconds) + ("" if state.ended_at is not None else " so far"))
    if state.step is not None:
        lines += fact_lines("step", f"{state.step}" + (f" of {state.total}" if state.total else ""))
    if not data.recorded:
        lines += fact_lines("restarts", f"{state.restarts}, segments {state.segments}, {_again(data)}")
    if lost_text(data):
        lines += fact_lines("lost", lost_text(data))
    if began_words(state):
        lines += fact_lines("began from", began_words(state))
    if state.checkpoint:
        lines += fact_lines("checkpoint", f"{state.checkpoint} ({len(data.checkpoints)} seen)")
    for name, text in [*_facts(data.views), *_facts(data.sections)]:
        lines += fact_lines(name, text)
    return lines


def _again(data: ReportData) -> str:
    again = data.lost.repeated_steps
    return "steps done again " + ("unknown" if again is None else str(again))


def lost_text(data: ReportData) -> str:
    """Return what restarts and chaining cost, as a sentence's part; empty when there were none."""
    lost = data.lost
    if len(data.state.attempts) < 2 and not lost.queue_s:
        return ""
    parts = [f"{format_duration(lost.queue_s)} waiting between segments"] if lost.queue_s else []
    parts.append(f"{format_duration(lost.between_s)} between attempts")
    repeated = "unknown time" if lost.repeated_s is None else format_duration(lost.repeated_s)
    return ", ".join([*parts, f"{repeated} of training done again"])


def _segments(data: ReportData) -> list[str]:
    lines = ["Segments"] if worth_showing(data.state) else []
    for times in data.segments if lines else []:
        words = segment_words(times)
        lines += text_lines(words.course, "     ", f"  {words.number:<2} ")
        lines += text_lines(words.ended, "     ")
    return lines


def _phases(data: ReportData) -> list[str]:
    lines = ["Where the time went"] if data.shares else []
    for share in data.shares:
        bar = "█" * round(share.share * _BAR)
        lines.append(f"  {share.name:8} {format_duration(share.seconds):>12} {share.share:6.1%}  {bar}".rstrip())
    return lines


def troubled_first(node: NodeState) -> tuple[bool, bool, int, str]:
    """Sort nodes that were left out or found wanting before the others, then by name as people count."""
    return node.role in ("active", "spare"), node.verdict == "healthy", len(node.node), node.node


def _nodes(data: ReportData) -> list[str]:
    nodes = sorted(data.state.nodes, key=troubled_first)
    lines = ["Nodes"] if nodes else []
    for node in nodes[:_MOST_NODES]:
        held = f"ranks {ranges(node.ranks)}" if node.ranks else node.reason
        first = f"  {one_line(node.node, 16):16} {node.verdict:8} {node.role:9}"
        lines += text_lines(held, " " * 38, f"{first} ") if held else [first.rstrip()]
        for result in node.results:
            if result.get("status") != "pass":
                lines += text_lines(
                    f"{called(result)} {result.get('status')}: {result.get('evidence')}", "      ", "    "
                )
    if len(nodes) > _MOST_NODES:
        lines.append(f"  and {len(nodes) - _MOST_NODES} more, in report.json")
    return lines


def _metrics(data: ReportData) -> list[str]:
    lines = ["Logged by the ranks (mean over ranks)"] if data.curves else []
    for name, curve in data.curves.items():
        found = summary(curve.mean)
        if found["last"] is not None:
            lines.append(
                f"  {one_line(name, 22):22} first {found['first']:<10.4g} last {found['last']:<10.4g} mean {found['mean']:.4g}"
            )
    return lines


def _resources(data: ReportData) -> list[str]:
    import numpy as np

    lines = ["Resource use                              (mean, greatest)"] if data.usage else []
    for group, usage in data.usage.items():
        for at, metric in enumerate(usage.metrics):
            taken = int(usage.samples[at].sum())
            if taken and metric not in _LEFT_OUT:
                total = float(np.nansum(usage.mean[at] * usage.samples[at]))
                mean, most = quantity(metric, total / taken), quantity(metric, float(np.nanmax(usage.most[at])))
                lines.append(f"  {group:5} {one_line(metric, 34):34} {mean:>12} {most:>12}")
    return lines


def quantity(metric: str, value: float) -> str:
    """Return a sample as people read it, by its metric's name."""
    if "bytes" in metric:
        return format_size(value) + ("/s" if metric.endswith("per_second") else "")
    if metric.endswith("_hertz"):
        return f"{value / 1e9:.2f} GHz"
    return f"{value:.1%}" if metric.endswith("_ratio") and metric not in _NOT_SHARES else f"{value:.2f}"


def _troubles(data: ReportData) -> list[str]:
    texts = [f"{finding.severity}: {finding.text}" for finding in data.state.findings]
    what = {text: finding.next for text, finding in zip(texts, data.state.findings, strict=True)}
    for entry in data.state.attempts:
        if entry.get("outcome") not in (None, "finished", "segment"):
            why = entry.get("reason")
            said = why in [finding.text for finding in data.state.findings]
            texts.append(f"attempt {entry['attempt']} {entry['outcome']}" + ("" if said else f": {why}"))
            texts += failure_texts(data, entry)
    hidden = len(texts) - _MOST_TROUBLES
    lines = [f"  {hidden} earlier ones are in report.json"] if hidden > 0 else []
    for text in texts[max(0, hidden) :] + [f"not shown: {text}" for text in data.missing]:
        lines += text_lines(text, "    ", "  ")
        if what.get(text):
            lines += text_lines(f"next: {what[text]}", "      ", "    ")
    return ["Troubles", *lines] if lines else []


def failure_texts(data: ReportData, attempt: dict[str, Any]) -> list[str]:
    """Return what failed in an attempt; a failure without a place is the attempt's own reason and not said again."""
    return [
        failure_text(failure)
        for failure in data.state.failures
        if failure.get("attempt") == attempt["attempt"] and failure.get("message") and failure.get("node")
    ]


def failure_text(failure: dict[str, Any]) -> str:
    """Return who failed how, and what it said last."""
    node, rank = failure.get("node"), failure.get("rank")
    how = failure.get("signal") or ("" if failure.get("code") is None else f"code {failure['code']}")
    message = failure.get("message") or "no message"
    if rank is None and not node:
        return message
    who = f"node {node}" if rank is None else f"rank {rank} on {node}"
    return f"{who}{f' ended with {how}' if how else ''}: {message}"


def _last(data: ReportData) -> list[str]:
    lines: list[str] = []
    if data.state.state == "failed":
        for rank, last in data.last_lines.items():
            lines.append(f"Last lines of {'set-up' if rank < 0 else f'rank {rank}'}")
            lines += [f"  {clean(text).expandtabs(4)[: COLUMNS - 2]}".rstrip() for text in last]
    return lines
