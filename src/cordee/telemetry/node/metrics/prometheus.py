"""The text that a Prometheus endpoint answers with, also as OpenMetrics, as points."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import Iterator, NamedTuple, Optional, Sequence

from cordee.telemetry.node.metrics.points import COUNTER, GAUGE, HISTOGRAM, Point, labels_of

_LINE = re.compile(
    r"""([A-Za-z_:][A-Za-z0-9_:]*)            # the name
        \s*(?:\{((?:[^"}]|"(?:[^"\\]|\\.)*")*)\})?  # labels
        \s+([^\s#]+)                          # the value
        (?:\s+[^\s#]+)?                       # a time, which is the endpoint's own affair
        \s*(?:\#.*)?$""",
    re.VERBOSE,
)
_LABEL = re.compile(r'([A-Za-z_][A-Za-z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(?:,|$)')
_ESCAPE = re.compile(r"\\(.)")
_PARTS = ("_sum", "_count", "_bucket", "_created", "_total")
_LONGEST_LINE = 8192
_LEFT_OUT = ("_bucket", "_created", "_info")


class Exposition(NamedTuple):
    """What a text says.

    Attributes:
        points: of all series that are kept, gauges, counters and histograms.
        left_out: series beyond the most that are kept.
        unreadable: lines that are none.
    """

    points: list[Point]
    left_out: int
    unreadable: int


class _Line(NamedTuple):
    name: str
    labels: tuple[tuple[str, str], ...]
    value: float


def read_exposition(text: str, moment: float, patterns: Sequence[str] = (), most_series: int = 500) -> Exposition:
    """Return what a text says at a moment.

    Buckets of histograms are left out, as are times of creation; a histogram or summary is its sum and its count.

    Args:
        text: as the endpoint sends it.
        moment: UTC epoch seconds when it was read.
        patterns: of names that are kept, with `*`; none: all. A name is that of the metric or of the line.
        most_series: how many are kept.
    """
    kinds: dict[str, str] = {}
    points: list[Point] = []
    sums: dict[tuple[str, tuple[tuple[str, str], ...]], dict[str, float]] = {}
    left_out = unreadable = 0
    for raw in text.splitlines():
        words = raw.split(None, 3)
        if not words or words[0].startswith("#"):
            if len(words) == 4 and words[1] == "TYPE":
                kinds[words[2]] = words[3].strip()
            continue
        line = _read(raw.strip())
        if line is None:
            unreadable += 1
            continue
        family, part = _family(line.name, kinds)
        if line.name.endswith(_LEFT_OUT) or not _wanted((line.name, family), patterns):
            continue
        if len(points) + len(sums) >= most_series and (family, line.labels) not in sums:
            left_out += 1
        elif kinds.get(family) in ("histogram", "summary") and part in ("_sum", "_count"):
            sums.setdefault((family, line.labels), {})[part] = line.value
        else:
            kind = COUNTER if kinds.get(family) == "counter" or line.name.endswith("_total") else GAUGE
            points.append(Point(line.name, line.labels, kind, moment, line.value))
    points += [
        Point(name, labels, HISTOGRAM, moment, parts["_sum"], parts["_count"])
        for (name, labels), parts in sums.items()
        if len(parts) == 2
    ]
    return Exposition([point for point in points if point.value == point.value], left_out, unreadable)


def _read(line: str) -> Optional[_Line]:
    match = _LINE.match(line) if len(line) <= _LONGEST_LINE else None
    if match is None:
        return None
    try:
        value = float(match.group(3))
    except ValueError:
        return None
    return _Line(match.group(1), labels_of(dict(_labels(match.group(2) or ""))), value)


def _labels(text: str) -> Iterator[tuple[str, str]]:
    for match in _LABEL.finditer(text):
        yield match.group(1), _ESCAPE.sub(lambda one: "\n" if one.group(1) == "n" else one.group(1), match.group(2))


def _family(name: str, kinds: dict[str, str]) -> tuple[str, str]:
    """Return the metric that a line belongs to, and which part of it the line is."""
    if name in kinds:
        return name, ""
    for part in _PARTS:
        if name.endswith(part) and name[: -len(part)] in kinds:
            return name[: -len(part)], part
    return name, ""


def _wanted(names: Sequence[str], patterns: Sequence[str]) -> bool:
    return not patterns or any(fnmatchcase(name, pattern) for name in names for pattern in patterns)
