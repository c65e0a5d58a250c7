"""Metrics as their sources say them, and what is recorded of them: rates of counters, means of histograms, values of gauges."""

from __future__ import annotations

from typing import Mapping, NamedTuple, Optional, Sequence

GAUGE, COUNTER, HISTOGRAM = "gauge", "counter", "histogram"

_MOST_LABELS = 8
_LONGEST_LABEL = 64
_MOST_SERIES = 10_000
_ENDED_AFTER_S, _SWEEP_EVERY_S = 600.0, 60.0


class Point(NamedTuple):
    """One value of one series.

    Attributes:
        name: of the metric.
        labels: what tells its series apart.
        kind: a gauge, or a counter or histogram that only grows.
        time: UTC epoch seconds.
        value: of a histogram the sum.
        observations: of a histogram, how many.
    """

    name: str
    labels: tuple[tuple[str, str], ...]
    kind: str
    time: float
    value: float
    observations: float = 0.0


class Recorded(NamedTuple):
    """A value to record: its name, with the labels, and its unit."""

    name: str
    value: float
    unit: str = ""


class PointSeries:
    """Turns points into values to record; it remembers the last value of what only grows.

    A counter that became smaller began anew, and says nothing about the time in between. Of more than 10,000 series the
    others are left out, until some have been silent for ten minutes.
    """

    def __init__(self) -> None:
        self._last: dict[tuple[str, tuple[tuple[str, str], ...]], Point] = {}
        self._swept_at = 0.0

    def take(self, points: Sequence[Point]) -> list[Recorded]:
        """Return what is recorded of points."""
        return [recorded for point in points for recorded in self._take(point)]

    def _take(self, point: Point) -> list[Recorded]:
        if point.kind == GAUGE:
            return [Recorded(labelled(point.name, point.labels), point.value)]
        key = (point.name, point.labels)
        if key not in self._last and not self._room(point.time):
            return []
        before: Optional[Point] = self._last.get(key)
        self._last[key] = point
        if before is None or point.time <= before.time:
            return []
        grown, more = point.value - before.value, point.observations - before.observations
        if (grown < 0 and point.kind == COUNTER) or more < 0:
            return []
        return self._of(point, grown, more, point.time - before.time)

    def _room(self, now: float) -> bool:
        """Return whether there is room for one more series, if need be in place of those that ended long ago."""
        if len(self._last) >= _MOST_SERIES and now >= self._swept_at + _SWEEP_EVERY_S:
            self._swept_at = now
            self._last = {key: point for key, point in self._last.items() if point.time > now - _ENDED_AFTER_S}
        return len(self._last) < _MOST_SERIES

    def _of(self, point: Point, grown: float, more: float, seconds: float) -> list[Recorded]:
        """Return the rate of what grew over some seconds; of a histogram also the mean of what was observed then."""
        if point.kind == COUNTER:
            return [Recorded(labelled(_rate_name(point.name), point.labels), grown / seconds, "1/s")]
        found = []
        if more > 0:
            found.append(Recorded(labelled(f"{point.name}_mean", point.labels), grown / more))
        found.append(Recorded(labelled(f"{point.name}_count_per_second", point.labels), more / seconds, "1/s"))
        return found


def labelled(name: str, labels: Sequence[tuple[str, str]]) -> str:
    """Return a name with its labels, as Prometheus writes them: at most eight, their values cut to 64 characters."""
    if not labels:
        return name
    shown = [f'{key}="{_escaped(value[:_LONGEST_LABEL])}"' for key, value in labels[:_MOST_LABELS]]
    return f"{name}{{{','.join(shown)}}}"


def labels_of(pairs: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return labels in the order in which they are compared and shown."""
    return tuple(sorted(pairs.items()))


def _rate_name(name: str) -> str:
    return f"{name[: -len('_total')] if name.endswith('_total') else name}_per_second"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
