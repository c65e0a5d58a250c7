"""The score in a few lines: for a terminal, for a run's own report, for its JSON document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from cordee.core.draw.clean import clean, one_line
from cordee.core.draw.pages import page_environment
from cordee.core.units import format_duration
from cordee.core.words import bar, wrapped
from cordee.systems.score.compare import compare
from cordee.systems.score.report import classes, figures
from cordee.systems.score.report.compared import side_by_side
from cordee.systems.score.report.words import factor, headline, percent, points
from cordee.systems.score.result import Saturation

_BAR = 40
_MOST_FLAGS = 5


def summary_lines(saturation: Saturation) -> list[str]:
    """Return the score, what it is made of, the causes and flags as lines of at most 80 columns."""
    result, shares = saturation, saturation.shares
    lines = _wrapped(f"{result.job.name}: {headline(result)}")
    if shares.score is None:
        return lines + _reasons(result)
    for name in figures.PARTS:
        value = getattr(shares, name) or 0.0
        assumed = " assumed" if name in result.assumed else ""
        lines.append(f"  {name:<8} {bar(value, _BAR)} {value:6.1%}{assumed}")
    lines += _wrapped(
        f"balance {percent(result.balance)} · clock {percent(result.clock_ratio)} · coverage {percent(shares.coverage)}"
        f" · confidence {percent(result.confidence)}",
        2,
    )
    for cause in result.diagnosis[:2]:
        gain = f" (removing this could make the job up to {cause.gain:.2f}x faster)" if cause.gain else ""
        lines += _wrapped(f"{percent(cause.share)} {cause.name}: {cause.title}{gain}", 2)
        lines += [line for text in cause.advice[:1] for line in _wrapped(f"→ {text}", 4)]
    for flag in result.flags[:_MOST_FLAGS]:
        lines += _wrapped(f"! {flag.text}", 2)
    if len(result.flags) > _MOST_FLAGS:
        lines.append(f"  ! and {len(result.flags) - _MOST_FLAGS} more in score.json")
    source = f"{result.source} every {result.cadence_s:g} s over {format_duration(result.seconds)}"
    return lines + _wrapped(f"{source}. Hardware saturation, not speed.", 2)


def comparison_lines(results: Sequence[Saturation]) -> list[str]:
    """Return what moved between jobs as lines of at most 80 columns; none for fewer than two."""
    if len(results) < 2:
        return []
    lines = []
    for statement in side_by_side(results, compare(results)).statements:
        lines += _wrapped(statement.title)
        lines += [line for text in statement.lines for line in _wrapped(text, 2)]
    return lines


def summary_html(saturation: Saturation) -> str:
    """Return a fragment for a page that includes `score.css.j2`: score, bar, classes over time, causes, flags."""
    result = saturation
    course = classes.course(result) if result.shares.score is not None else None
    fragment: str = (
        page_environment("cordee.systems.score.report")
        .get_template("summary.html.j2")
        .render(
            headline=headline(result),
            scored=result.shares.score is not None,
            product=_product(result),
            bar=Markup(figures.loss_bar(result.shares) if result.shares.score is not None else ""),
            losses=figures.losses(result.shares),
            classes=Markup(figures.classes_chart(course) if course else ""),
            key=[
                (name, name, percent(float(shares.mean())))
                for name, shares in (course.shares.items() if course else ())
            ],
            causes=[
                (cause.name, percent(cause.share), cause.title, cause.advice[:2]) for cause in result.diagnosis[:2]
            ],
            flags=result.flags[:_MOST_FLAGS],
            reasons=[*result.remarks[:3], *_told(result)],
        )
    )
    return fragment


def summary_document(saturation: Saturation) -> dict[str, Any]:
    """Return the score's main numbers for a run's report.json; what is not known is null."""
    result = saturation
    return {
        "score": result.shares.score,
        **{name: getattr(result.shares, name) for name in figures.PARTS},
        "coverage": result.shares.coverage,
        "balance": result.balance,
        "clock_ratio": result.clock_ratio,
        "confidence": result.confidence,
        "kind": result.kind,
        "source": result.source,
        "assumed": list(result.assumed),
        "energy_joules": result.energy_joules,
        "mfu": result.mfu,
        "goodput": result.goodput_ratio,
        "diagnosis": [
            {"class": cause.name, "share": cause.share, "title": cause.title, "advice": list(cause.advice)}
            for cause in result.diagnosis
        ],
        "flags": [flag.document() for flag in result.flags],
    }


def _product(result: Saturation) -> str:
    factors = " × ".join(f"{name} {factor(result, name)}" for name in figures.PARTS)
    return f"{points(result.shares.score)} = 100 × {factors}"


def _reasons(result: Saturation) -> list[str]:
    return [line for text in [*_told(result), *result.remarks[:3]] for line in _wrapped(text, 2)]


def _told(result: Saturation) -> list[str]:
    """Return why nothing was measured, where nothing was."""
    if result.shares.score is not None:
        return []
    return [f"{name}: {reason}" for name, reason in list(result.missing.items())[:5]]


def _wrapped(text: str, indent: int = 0) -> list[str]:
    space = " " * indent
    return wrapped(clean(one_line(text, 2000)), space + "  ", space)
