"""The score in a terminal, within 80 columns."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from cordee.core.draw.clean import clean, one_line
from cordee.core.units import format_duration
from cordee.core.words import COLUMNS, bar, wrapped
from cordee.systems.score.report.summary import comparison_lines
from cordee.systems.score.report.words import energy

if TYPE_CHECKING:
    from cordee.systems.score.result import Saturation, ScoreWindows

_BAR = 30
_STRIP = 54
_MOST_FLAGS, _MOST_REMARKS = 6, 4
# One letter for each class in the strip; a window in which no class has half of the devices is `~`.
LETTERS = {
    "checkpoint": "k",
    "input": "i",
    "idle": ".",
    "transfer": "t",
    "communication": "c",
    "memory": "m",
    "compute": "#",
    "launch": "l",
    "latency": "y",
    "mixed": "x",
    "hang": "H",
    "contention": "w",
    "unknown": "?",
}
_NOBODY = "~"
WHAT_IT_IS_NOT = "Hardware saturation, not speed: work that need not be done counts as work."


def score_lines(saturation: Saturation) -> list[str]:
    """Return a scoring as lines of at most 80 columns."""
    shares = saturation.shares
    lines = _wrapped(_title(saturation))
    if shares.score is None:
        reasons = [f"{name}: {reason}" for name, reason in saturation.missing.items()]
        return [
            *lines,
            *_wrapped(f"No score: {', '.join(saturation.confidence_reasons)}."),
            *_listed("", [*reasons, *saturation.remarks]),
        ]
    of_what = "GPUs" if saturation.kind == "gpu" else "CPU cores, there was no GPU"
    bound = ", an upper bound" if saturation.assumed else ""
    lines += ["", f"score {shares.score:.1f} of 100 ({of_what}{bound})"]
    for name, value in (("time", shares.time), ("breadth", shares.breadth), ("depth", shares.depth)):
        assumed = "  not measured, counts as 1" if name in saturation.assumed else ""
        lines.append(f"  {name:<8} {bar(value or 0, _BAR)} {100 * (value or 0):5.1f} %{assumed}")
    lines += _wrapped("  ".join(_beside(saturation)))
    lines += ["", *_strip(saturation)] if len(saturation.windows.starts) else []
    lines += _causes(saturation)
    lines += _listed("! ", [_flag(flag.text, flag.next) for flag in saturation.flags], _MOST_FLAGS)
    lines += _listed("- ", [*saturation.confidence_reasons, *saturation.remarks], _MOST_REMARKS)
    return [*lines, "", *_wrapped(WHAT_IT_IS_NOT)]


def table_lines(found: Sequence[Saturation]) -> list[str]:
    """Return several scorings side by side, and what moved from the first to the others."""
    names = [one_line(clean(saturation.job.name), 200) for saturation in found]
    width = min(34, max(len(name) for name in names))
    lines = [f"{'':<{width}}  score   time  breadth  depth  coverage  top class"]
    for name, saturation in zip(names, found, strict=True):
        shares = saturation.shares
        name = name if len(name) <= width else name[: width - 1] + "…"
        if shares.score is None:
            lines.append(f"{name:<{width}}  {', '.join(saturation.confidence_reasons)}"[:COLUMNS])
            continue
        values = f"{shares.score:5.1f}  {_ratio(shares.time)}  {_ratio(shares.breadth):>7}  {_ratio(shares.depth)}"
        top = saturation.diagnosis[0] if saturation.diagnosis else None
        cause = f"{top.name} {100 * top.share:.0f} %" if top else ""
        lines.append(f"{name:<{width}}  {values}  {100 * shares.coverage:6.0f} %  {cause}"[:COLUMNS])
    return [*lines, "", *comparison_lines(found), "", *_wrapped(WHAT_IT_IS_NOT)]


def _title(saturation: Saturation) -> str:
    job = saturation.job
    state = job.state + (f", exit code {job.exit_code}" if job.exit_code else "")
    count = len(saturation.devices)
    what = ("GPU" if saturation.kind == "gpu" else "node") + ("s" if count != 1 else "")
    held = f" of {job.allocated}" if job.allocated and job.allocated != count and saturation.kind == "gpu" else ""
    names = " + ".join(cap.model for cap in saturation.caps if cap.model and saturation.kind == "gpu")
    hardware = f"{count}{held} {what}" + (f" ({names})" if names else "")
    length = format_duration(saturation.seconds)
    return f"{job.name}: {state}, {hardware}, {length}, {saturation.source} every {saturation.cadence_s:g} s"


def _beside(saturation: Saturation) -> list[str]:
    """Return what stands beside the score, as far as it is known."""
    ratios = {
        "balance": saturation.balance,
        "clock": saturation.clock_ratio,
        "coverage": saturation.shares.coverage,
        "confidence": saturation.confidence,
        "MFU": saturation.mfu,
        "goodput": saturation.goodput_ratio,
    }
    said = [f"{name} {100 * value:.0f} %" for name, value in ratios.items() if value is not None]
    if saturation.energy_joules is not None:
        said.append(f"energy {energy(saturation.energy_joules)}")
    return said + [f"{name.replace('_per_s', '/s')} {value:.4g}" for name, value in saturation.rates.items()]


def _strip(saturation: Saturation) -> list[str]:
    """Return the classes over time as one line of letters, and what the letters mean."""
    windows = saturation.windows
    letters = strip(windows)
    form = "%H:%M:%S" if saturation.seconds < 3600 else "%H:%M"
    ends = [
        time.strftime(form, time.gmtime(moment))
        for moment in (float(windows.starts[0]), float(windows.starts[-1]) + windows.length_s)
    ]
    known = [f"{letter} {name}" for name, letter in LETTERS.items() if letter in letters]
    known += [f"{_NOBODY} devices differ"] if _NOBODY in letters else []
    space = " " * (len(ends[0]) + 1)
    return [
        f"{ends[0]} {letters} {ends[1]} UTC",
        *(f"{space}{line}" for line in textwrap.wrap("  ".join(known), COLUMNS - len(space))),
    ]


def strip(windows: ScoreWindows, width: int = _STRIP) -> str:
    """Return one letter for each window, or for several where there are more than `width`: the class of most devices."""
    names = list(LETTERS)
    letters = []
    for part in np.array_split(windows.classes, min(width, len(windows.classes)), axis=0):
        counts = np.bincount(np.where(part < 0, len(names) - 1, part).ravel(), minlength=len(names))
        most = int(np.argmax(counts))
        letters.append(LETTERS[names[most]] if counts[most] * 2 > part.size else _NOBODY)
    return "".join(letters)


def _causes(saturation: Saturation) -> list[str]:
    lines: list[str] = []
    for cause in saturation.diagnosis[:2]:
        lines += ["", *_wrapped(f"{100 * cause.share:.0f} % {cause.name}: {cause.title}")]
        lines += _listed("  ", list(cause.evidence))
        lines += _listed("  → ", list(cause.advice[:2]))
        if cause.gain is not None and cause.gain >= 1.01:
            lines += _wrapped(f"Removing this could make the job up to {cause.gain:.2f}x faster.", "  ")
    others = [f"{cause.name} {100 * cause.share:.0f} %" for cause in saturation.diagnosis[2:] if cause.share >= 0.005]
    return lines + (_wrapped(f"Also: {', '.join(others)}") if others else []) + [""]


def _flag(text: str, what: str | None) -> str:
    return f"{text}. {what[0].upper()}{what[1:]}." if what else f"{text}."


def _listed(mark: str, texts: Sequence[str], most: int = 100) -> list[str]:
    lines = [line for text in texts[:most] for line in _wrapped(text, mark)]
    return lines + ([f"{mark}{len(texts) - most} more with --json"] if len(texts) > most else [])


def _wrapped(text: str, mark: str = "") -> list[str]:
    space = " " * len(mark)
    return wrapped(clean(one_line(text, 2000)), space, mark)


def _ratio(value: float | None) -> str:
    return "     ?" if value is None else f"{value:5.2f}"
