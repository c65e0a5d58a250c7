"""What the live view draws: an overview that fits the screen."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from cordee.backends.reconcile import known_until
from cordee.core.draw.clean import clean, one_line, ranges
from cordee.core.stats import finite
from cordee.core.terminal.draw import sparkline
from cordee.core.terminal.quantities import quantity
from cordee.core.units import format_duration, format_size
from cordee.faces.report.text import failure_text, troubled_first
from cordee.runs.state import NodeState, RankState
from cordee.telemetry.store.phases import phase_shares

if TYPE_CHECKING:
    from cordee.faces.cli.watch.samples import Differing, NewestSamples, SampleRow
    from cordee.faces.cli.watch.state import WatchState

_NARROW = 90
_USAGE_FITS = 70
_SPARK = 40
_RATES = ("_per_s", "_per_second", "throughput")
_STYLES = {"finished": "green", "running": "cyan", "queued": "yellow", "failed": "bold red", "cancelled": "yellow"}
_STYLES |= {
    "held": "yellow",
    "suspended": "yellow",
    "healthy": "green",
    "suspect": "yellow",
    "bad": "bold red",
    "unknown": "yellow",
    "lost": "red",
    "excluded": "red",
    "error": "bold red",
    "warn": "yellow",
}


def overview(view: WatchState, height: int, width: int) -> RenderableType:
    """Return the whole screen, at most `height` rows; what does not fit is counted, the worst comes first."""
    state = view.state
    top, now = _head(view), _now(view, width)[: max(0, height - 12)]
    troubles = _troubles(view)[: max(0, height - 15)]
    foot = [] if state.ended else [_line("q leaves, the run continues", "dim")]
    room = height - len(top) - len(now) - len(troubles) - len(foot) - 3  # two headings, one rule
    resources = _resources(view, width, max(0, min(len(view.samples.rows), room - 9)))
    room -= len(resources)
    most_nodes = min(len(state.nodes), max(1, room // 4))
    room -= most_nodes + (len(state.nodes) > most_nodes)
    lines = max(1, room // 2)
    most_ranks = min(len(state.ranks), max(1, room - lines - 1))
    lines = max(1, room - most_ranks - (len(state.ranks) > most_ranks))
    parts = [*top, *now, *resources]
    parts += [_nodes(view, most_nodes)] if state.nodes else []
    parts += [_ranks(view, most_ranks, width)] if state.ranks else []
    parts += troubles
    parts += [Rule("output", align="left", style="dim"), *_output(view)[-lines:], *foot]
    return Group(*parts)


def _head(view: WatchState) -> list[RenderableType]:
    """Return the first lines: state, counts, where the time went, why it waits."""
    state = view.state
    first = _line(view.folder.id, "bold")
    first.append("  ").append(view.word, _STYLES.get(view.word, ""))
    if state.text:
        first.append(f"  {one_line(state.text)}")
    spent = "  ".join(
        f"{share.name} {format_duration(share.seconds)}"
        for share in phase_shares(state, known_until(view.folder, state))
    )
    job = f"  job {state.job}" if state.job else ""
    counts = f"segment {state.segments}  attempt {state.attempt}  restarts {state.restarts}{job}"
    found: list[RenderableType] = [first, _line(counts, "dim"), _line(spent, "dim")]
    if view.waits:
        found += [_line(part, "yellow") for part in f"{view.waits}; `cordee advise` says more".split("; ")]
    return found


def row_document(samples: NewestSamples, row: SampleRow) -> dict[str, Any]:
    """Return a row as JSON; what is not finite is null."""
    numbers = {name: getattr(row, name) for name in ("now", "mean", "low", "high", "far_value")}
    return {
        "title": row.title,
        "group": row.group,
        "metric": row.metric,
        "unit": row.unit,
        "source": row.source,
        "devices": row.devices,
        "far": samples.name(row, row.far) or None,
        **{name: finite(value) for name, value in numbers.items()},
        "history": [finite(value) for value in row.line(_SPARK)],
        "until": max(row.history, default=None),
    }


def _now(view: WatchState, width: int) -> list[RenderableType]:
    """Return the bar of steps, what a rank logs now with how it went, and the score so far."""
    state = view.state
    step = min(view.steps.values(), default=state.step)
    parts: list[RenderableType] = []
    if step is not None:
        table = Table.grid(padding=(0, 2))
        cells: list[RenderableType] = [_line(f"step {step}" + (f" of {state.total}" if state.total else ""))]
        if state.total:
            cells.insert(0, ProgressBar(total=state.total, completed=min(step + 1, state.total), width=_SPARK))
        table.add_row(*cells)
        parts.append(table)
    rates = [name for name in view.values if name.endswith(_RATES)]
    room = _SPARK if width >= _NARROW else _SPARK // 2
    for name in [name for name in ("loss", *sorted(rates)[:2]) if name in view.values]:
        values = view.values[name]
        parts.append(_laid(f"{sparkline(list(values), room):{room}}  {one_line(name, 30)} {values[-1]:.5g}"))
    if view.score and isinstance(view.score.get("score"), (int, float)):
        told = f"score {view.score['score']:.0f} of 100"
        told += "".join(
            f"  {name} {100 * view.score[name]:.0f} %"
            for name in ("time", "breadth", "depth")
            if view.score.get(name) is not None
        )
        causes = [cause for cause in view.score.get("diagnosis", []) if cause.get("share")]
        parts.append(_line(told + "".join(f"  {cause['class']} {100 * cause['share']:.0f} %" for cause in causes[:3])))
    elif view.score_text:
        parts.append(_line(f"score: {view.score_text}", "dim"))
    return parts


def _resources(view: WatchState, width: int, most: int) -> list[RenderableType]:
    """Return at most `most` lines: per resource over all devices how it went, now, its mean, the spread, who stands out."""
    samples = view.samples
    if samples.trouble:
        return [_line(f"samples: {samples.trouble}", "yellow")]
    if most < 2 or not samples.rows:
        return []
    wide = width >= _NARROW
    spark = max(8, min(_SPARK, width - 88)) if wide else 10
    spread = f"{'lowest - highest':<22}" if wide else ""
    found: list[RenderableType] = [
        _laid(f"{'resource':<14} {'':{spark}} {'now':>9} {'mean':>9}  {spread} stands out", "dim")
    ]
    shown = samples.rows if len(samples.rows) < most else samples.rows[: max(1, most - 2)]
    for row in shown:
        several = row.devices > 1
        ends = f"{quantity(row.low, row.unit)} - {quantity(row.high, row.unit)}" if several else ""
        far = f"{one_line(samples.name(row, row.far), 24)} {quantity(row.far_value, row.unit)}" if several else ""
        drawn = sparkline(row.line(spark), spark, low=0.0)
        text = f"{row.title:<14} {drawn:<{spark}} {quantity(row.now, row.unit):>9} {quantity(row.mean, row.unit):>9}  "
        found.append(_laid(text + (f"{ends:<22} " if wide else "") + far))
    if len(shown) < len(samples.rows):
        found.append(_line(f"and {len(samples.rows) - len(shown)} more on the page of `cordee serve`", "dim"))
    return found[:most]


def _nodes(view: WatchState, most: int) -> RenderableType:
    table = _table("node", "verdict", "role", "ranks", "why")
    ordered = sorted(view.state.nodes, key=troubled_first)
    for node in ordered[:most]:
        table.add_row(
            _line(node.node),
            _line(node.verdict, _STYLES.get(node.verdict, "")),
            _line(node.role, _STYLES.get(node.role, "")),
            _line(ranges(node.ranks)),
            _line(_why(node), "dim"),
        )
    if len(ordered) > most:
        table.add_row(_line(f"and {len(ordered) - most} more", "dim"))
    return table


def _ranks(view: WatchState, most: int, width: int) -> RenderableType:
    wide = width >= _USAGE_FITS
    table = _table("rank", "node", "status", "step", *(["cores", "memory"] if wide else []), "differs, last message")
    differing = {one.rank: one for one in view.samples.differing}
    cores, memory = (view.samples.usage(metric) for metric in ("cpu_cores_ratio", "memory_rss_bytes"))
    ordered = _ordered(view, differing)
    for rank in ordered[:most]:
        number = rank.rank
        used = [
            f"{cores[number]:.2f}" if number in cores else "-",
            format_size(memory[number]) if number in memory else "-",
        ]
        message = _printed(view.output.partial.get(number) or view.last_of.get(number, b""))
        told = _line("")
        if number in differing:
            told.append(one_line(_differs(differing[number])), "yellow").append("; " if message else "")
        told.append(message)
        table.add_row(
            str(number),
            _line(rank.node),
            _line(rank.status, _STYLES.get(rank.status, "")),
            str(view.steps.get(number, "-")),
            *(used if wide else []),
            told,
        )
    if len(ordered) > most:
        table.add_row("", _line(f"and {len(ordered) - most} further on", "dim"))
    return table


def _ordered(view: WatchState, differing: dict[int, Differing]) -> list[RankState]:
    """Return the ranks: failed ones, those that are behind, those that differ most, the others."""
    silent_last = 2 * len(view.steps) <= len(view.state.ranks)  # as when only rank 0 logs
    unlogged = sys.maxsize if silent_last else -1
    places = {rank: at for at, rank in enumerate(differing)}
    newest = max(view.steps.values(), default=0)

    def key(rank: RankState) -> tuple[bool, int, int, int]:
        step = view.steps.get(rank.rank, unlogged)
        behind = step if step < newest - 1 else sys.maxsize  # ranks at work are a step apart
        return rank.status != "failed", behind, places.get(rank.rank, len(places)), rank.rank

    return sorted(view.state.ranks, key=key)


def _differs(one: Differing) -> str:
    return f"{one.title} {quantity(one.value, one.unit)}, others {quantity(one.median, one.unit)}"


def _troubles(view: WatchState) -> list[RenderableType]:
    texts = [f"{finding.severity}: {finding.text}" for finding in view.state.findings[-3:]]
    texts += [f"attempt {failure.get('attempt')}: {failure_text(failure)}" for failure in view.state.failures[-3:]]
    return [_line(text, "yellow") for text in texts]


def _output(view: WatchState) -> list[RenderableType]:
    several = view.state.world_size > 1
    names = {rank: "[set-up] " if rank < 0 else f"[{rank}] " if several else "" for rank, _ in view.messages}
    return [_line(names[rank] + _printed(line)) for rank, line in view.messages]


def _line(text: str, style: str = "") -> Text:
    """Return one row of the screen, cut at its edge; nothing in it is read as markup or by the terminal."""
    return Text(one_line(text), style=style, no_wrap=True, overflow="ellipsis", end="\n")


def _laid(text: str, style: str = "") -> Text:
    """Return one row of the screen whose blanks matter."""
    return Text(clean(text).replace("\n", " "), style=style, no_wrap=True, overflow="ellipsis", end="\n")


def _printed(line: bytes) -> str:
    """Return what a terminal would show of a line that was drawn over with carriage returns."""
    return one_line(line.rstrip(b"\r").rpartition(b"\r")[2].decode(errors="replace"))


def _table(*names: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", expand=True)
    for name in names[:-1]:
        table.add_column(name, no_wrap=True, overflow="ellipsis")
    table.add_column(names[-1], no_wrap=True, overflow="ellipsis", ratio=1)
    return table


def _why(node: NodeState) -> str:
    wanting = [result for result in node.results if result.get("status") not in ("pass", "skip")]
    return node.reason or "; ".join(f"{result.get('check')}: {result.get('evidence')}" for result in wanting)
