"""The report as one HTML file that needs nothing else."""

from __future__ import annotations

import shlex
from typing import Any

from markupsafe import Markup

from cordee.core.draw.charts import COLOURS
from cordee.core.draw.clean import ranges
from cordee.core.draw.pages import page_environment
from cordee.core.units import format_duration, utc_text
from cordee.faces.report.container import container_words
from cordee.faces.report.data import ReportData
from cordee.faces.report.document import environment, summary
from cordee.faces.report.plots import OUTCOMES, curve_plots, phases_plot, resource_plots
from cordee.faces.report.segments import began_words, segment_words, worth_showing
from cordee.faces.report.text import failure_texts, lost_text, quantity, troubled_first
from cordee.runs.state import NodeState, RankState, called
from cordee.telemetry.shown.section import PLACES

_MOST_ROWS = 200
_MOST_ATTEMPTS = 60
_MOST_FINDINGS = 100
_MOST_RESULTS = 40


def render_html(data: ReportData) -> str:
    """Return the page; everything that a program or a person wrote is escaped, without control characters, and cut."""
    state = data.state
    nodes = sorted(state.nodes, key=troubled_first)
    ranks = sorted(state.ranks, key=lambda rank: (rank.status != "failed", rank.rank))
    sections, styles = _sections(data)
    attempts = [_attempt(data, entry) for entry in state.attempts[-_MOST_ATTEMPTS:]]
    return (
        page_environment("cordee.faces.report")
        .get_template("template.html.j2")
        .render(
            run=data.folder.id,
            state=state,
            cards=_cards(data),
            facts=_facts(data),
            submitted=data.submitted,
            shares=data.shares,
            lost=lost_text(data),
            advised=data.advised,
            segments=[segment_words(times) for times in data.segments[-_MOST_ROWS:]] if worth_showing(state) else [],
            timeline=Markup(phases_plot(data)),
            attempts=attempts if len(attempts) > 1 or state.failures or state.state == "failed" else [],
            earlier=len(state.attempts) - len(attempts),
            findings=data.findings[-_MOST_FINDINGS:],
            missing=data.missing,
            last_lines=data.last_lines,
            curves=[(plot.name, Markup(plot.svg)) for plot in curve_plots(data)],
            resources=[(plot.name, Markup(plot.svg)) for plot in resource_plots(data)],
            sections=sections,
            styles=styles,
            nodes=[_node(data, node) for node in nodes[:_MOST_ROWS]],
            ranks=[_rank(data, rank) for rank in ranks[:_MOST_ROWS]],
            checkpoints=data.checkpoints[-10:],
            seen=len(data.checkpoints),
            hidden=max(0, len(nodes) - _MOST_ROWS) + max(0, len(ranks) - _MOST_ROWS),
            colours=range(COLOURS),
            duration=format_duration,
            now=utc_text(data.now)[:19].replace("T", " ") + " UTC",
        )
    )


def _sections(data: ReportData) -> tuple[dict[str, list[Markup]], list[Markup]]:
    """Return what systems show, by its place, and the styles that it needs."""
    found: dict[str, list[Markup]] = {place: [] for place in PLACES}
    styles = []
    for section in data.sections:
        shown = section.html()
        if shown:
            found[section.place].append(Markup(shown))
            styles.append(Markup(section.style()))
    return found, [style for style in styles if style]


def _cards(data: ReportData) -> list[tuple[str, str]]:
    """Return the few numbers that stand at the top."""
    state = data.state
    took = "not started" if data.seconds is None else format_duration(data.seconds)
    cards = [("took" if state.ended_at is not None else "still running", took)]
    if state.step is not None:
        cards.append(("step", f"{state.step} of {state.total}" if state.total else str(state.step)))
    for name in ("loss", "tokens_per_s", "samples_per_s"):
        found = summary(data.curves[name].mean) if name in data.curves else None
        if found is not None and found["last"] is not None:
            kind, value = ("last", found["last"]) if name == "loss" else ("mean", found["mean"])
            cards.append((f"{name}, {kind}", f"{value:,.4g}" if (value or 0) < 1000 else f"{value:,.0f}"))
    training = sum(share.share for share in data.shares if share.name == "train")
    if data.shares:
        cards.append(("of the time spent training", f"{training:.0%}"))
    if not data.recorded:
        cards.append(("restarts", str(state.restarts)))
    active = sum(node.role == "active" for node in state.nodes)
    cards.append(("nodes · ranks", f"{active} · {state.world_size}"))
    return cards


def _facts(data: ReportData) -> list[tuple[str, str]]:
    state, known = data.state, environment(data)
    asked = ", ".join(f"{name} {value}" for name, value in known["asked_for"].items())
    hosts = list(dict.fromkeys(node.host for node in state.nodes if node.host))
    again = data.lost.repeated_steps
    facts = [
        ("command", shlex.join(data.argv)),
        ("submitted", utc_text(state.submitted_at)[:19].replace("T", " ") + " UTC" if state.submitted_at else ""),
        ("cluster", f"{known['cluster']} ({known['back_end']})" if known["cluster"] else ""),
        ("asked for", asked),
        ("hosts", ", ".join(hosts[:8]) + (f" and {len(hosts) - 8} more" if len(hosts) > 8 else "")),
        ("segments", str(state.segments)),
        ("steps done again", "unknown: no steps were logged" if again is None else str(again)),
        ("began from", began_words(state)),
        ("newest checkpoint", state.checkpoint or "none"),
        ("checkpoints in", known["checkpoint_folder"] or ""),
        ("working folder", known["working_folder"] or ""),
        ("code", known["code_digest"] or ""),
        ("environment", container_words(data.step)),
        ("first on PATH", ", ".join(map(str, known["path_prepend"]))),
        ("set-up lines", "; ".join(map(str, known["setup"]))),
        ("variables set (names only)", ", ".join(known["variables"])),
        ("retries", "" if known["retries"] is None else str(known["retries"])),
        ("run folder", str(data.folder.root)),
    ]
    return [(name, text) for name, text in facts if text]


def _attempt(data: ReportData, entry: dict[str, Any]) -> dict[str, Any]:
    """Return one row of the table of attempts."""
    end = entry.get("ended_at") or data.state.ended_at or data.now
    resumed = entry.get("resume_step")
    return {
        "number": entry["attempt"],
        "began": format_duration(entry["started_at"] - (data.state.started_at or entry["started_at"])),
        "lasted": format_duration(max(0.0, end - entry["started_at"])),
        "from": "the beginning" if resumed is None else f"step {resumed}",
        "outcome": OUTCOMES.get(entry.get("outcome", "running"), entry.get("outcome", "running")),
        "kind": entry.get("outcome", "running"),
        "reason": entry.get("reason", ""),
        "failures": failure_texts(data, entry),
    }


def _node(data: ReportData, node: NodeState) -> dict[str, Any]:
    usage = data.usage.get("node")
    cpu = usage.of("cpu_busy_ratio", node.node) if usage else None
    memory = usage.of("memory_used_bytes", node.node) if usage else None
    results = [
        {"check": called(result), **{key: str(result.get(key, "")) for key in ("status", "evidence")}}
        for result in node.results
    ]
    return {
        "name": node.node,
        "host": node.host,
        "verdict": node.verdict,
        "role": node.role,
        "reason": node.reason,
        "ranks": ranges(node.ranks),
        "cpu": quantity("cpu_busy_ratio", cpu[0]) if cpu else "",
        "memory": quantity("memory_used_bytes", memory[1]) if memory else "",
        "wanting": [result for result in results if result["status"] != "pass"][:_MOST_RESULTS],
        "passed": [result for result in results if result["status"] == "pass"][:_MOST_RESULTS],
    }


def _rank(data: ReportData, rank: RankState) -> dict[str, Any]:
    usage = data.usage.get("rank")
    cores = usage.of("cpu_cores_ratio", rank.rank) if usage else None
    memory = usage.of("memory_rss_bytes", rank.rank) if usage else None
    return {
        "number": rank.rank,
        "node": rank.node,
        "status": rank.status,
        "exit": rank.signal or ("" if rank.code is None else f"code {rank.code}"),
        "step": data.last_steps.get(rank.rank, ""),
        "cores": quantity("cpu_cores_ratio", cores[0]) if cores else "",
        "memory": quantity("memory_rss_bytes", memory[1]) if memory else "",
    }
