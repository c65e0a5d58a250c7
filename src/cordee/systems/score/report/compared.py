"""Jobs side by side: a table of their numbers, and sentences on what moved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cordee.core.units import format_duration
from cordee.systems.score.compare import PARTS, JobComparison, JobPair, Moved
from cordee.systems.score.report.words import NOT_MEASURED, energy, percent, points
from cordee.systems.score.result import Saturation

_MOST_CLASSES = 4
_ONE_RUN = "One run of each cannot tell this from chance; `cordee score baseline` keeps five or more."


@dataclass(frozen=True)
class Statement:
    """What moved between two jobs, in sentences."""

    title: str
    lines: list[str]


@dataclass(frozen=True)
class SideBySide:
    """A table with a column for each job, and a statement for each after the first."""

    names: list[str]
    rows: list[tuple[str, list[str]]]
    statements: list[Statement]


def side_by_side(results: Sequence[Saturation], comparison: JobComparison) -> SideBySide:
    """Return what stands above several jobs."""
    rows = [
        ("score", [points(result.shares.score) for result in results]),
        *((name, [_part(result, name) for result in results]) for name in PARTS),
        ("balance", [percent(result.balance) for result in results]),
        ("coverage", [percent(result.shares.coverage) for result in results]),
        ("confidence", [percent(result.confidence) for result in results]),
        ("devices", [str(result.job.allocated or len(result.devices)) for result in results]),
        ("elapsed", [format_duration(result.seconds) for result in results]),
        ("energy", [energy(result.energy_joules) for result in results]),
        ("mostly", [", ".join(cause.name for cause in result.diagnosis[:2]) or NOT_MEASURED for result in results]),
    ]
    rates = dict.fromkeys(name for result in results for name in result.rates)
    rows += [(name.replace("_", " "), [_rate(result.rates.get(name)) for result in results]) for name in rates]
    return SideBySide([result.job.name for result in results], rows, [statement(pair) for pair in comparison.pairs])


def statement(pair: JobPair) -> Statement:
    """Return the sentences of one pair."""
    lines = []
    if pair.against:
        lines.append(f"Not comparable without care: {'; '.join(pair.against)}.")
    lines.append(_score_line(pair))
    lines += [line for moved in pair.classes[:_MOST_CLASSES] if (line := _class_line(moved))]
    lines += [_other_line(moved) for moved in pair.others]
    if pair.score.change is not None:
        lines.append(_ONE_RUN)
    return Statement(f"{pair.before} → {pair.after}", lines)


def _score_line(pair: JobPair) -> str:
    score = pair.score
    if score.change is None or score.before is None or score.after is None:
        return "The score cannot be compared: one of the jobs has none."
    words = f"Score {score.before:.1f} → {score.after:.1f} ({score.change:+.1f})"
    parts = [f"{name} {value:+.1f}" for name, value in sorted(pair.parts.items(), key=lambda item: -abs(item[1]))]
    return f"{words}: {', '.join(parts)} points." if parts else f"{words}."


def _class_line(moved: Moved) -> str:
    if moved.before is None or moved.after is None:
        return ""
    return f"{moved.name}: {moved.before:.0%} → {moved.after:.0%} of the time."


def _other_line(moved: Moved) -> str:
    show = energy if moved.name == "energy_joules" else _rate
    name = "energy" if moved.name == "energy_joules" else moved.name.replace("_", " ")
    words = f"{name}: {show(moved.before)} → {show(moved.after)}"
    if moved.before and moved.change is not None:
        words += f" ({moved.change / moved.before:+.0%})"
    return words + "."


def _part(result: Saturation, name: str) -> str:
    value: float | None = getattr(result.shares, name)
    return percent(value) + (" (assumed)" if name in result.assumed else "")


def _rate(value: float | None) -> str:
    return NOT_MEASURED if value is None else f"{value:,.4g}"
