"""Windows of metrics, from the records that agents send: a statistic of each place, told when its window is over."""

from __future__ import annotations

import math
from typing import Any, Iterator, Mapping, Optional, Sequence

from cordee.systems.rules.node.judge import RulePlace
from cordee.telemetry.node.blocklog import EVENTS, GRIDS, SCHEMA, decode_grid, decode_json, iter_records

_MOST_PLACES = 100_000
_MOST_SCHEMAS = 100_000


class _Window:
    """One window that is open."""

    __slots__ = ("count", "high", "low", "number", "total")

    def __init__(self, number: int) -> None:
        self.number, self.count, self.total = number, 0, 0.0
        self.low, self.high = math.inf, -math.inf

    def take(self, value: float) -> None:
        self.count += 1
        self.total += value
        self.low, self.high = min(self.low, value), max(self.high, value)

    def value(self, statistic: str) -> float:
        if statistic == "mean":
            return self.total / self.count
        return {"min": self.low, "max": self.high, "count": float(self.count)}[statistic]


class MetricWindows:
    """The open windows of the metrics that rules look at.

    Args:
        rules: that look at a metric, as a plan holds them.

    Attributes:
        full: whether there were more places than it keeps.
    """

    def __init__(self, rules: Sequence[Mapping[str, Any]]) -> None:
        self._rules: dict[str, list[Mapping[str, Any]]] = {}
        for rule in rules:
            self._rules.setdefault(rule["when"]["metric"], []).append(rule)
        self._columns: dict[int, Optional[tuple[list[RulePlace], int, list[tuple[int, str]]]]] = {}
        self._open: dict[tuple[str, RulePlace], _Window] = {}
        self._of: dict[str, Mapping[str, Any]] = {rule["id"]: rule for rule in rules}
        self._quoted = [f'"{name}"'.encode() for name in self._rules]
        self.full = False

    def take(self, body: bytes) -> Iterator[tuple[Mapping[str, Any], RulePlace, int, float]]:
        """Yield (rule, place, number of the window, value) of the windows that are over, as the records of an agent say.

        Raises:
            ValueError: these are no records.
        """
        for kind, record in iter_records(body):
            if kind == SCHEMA:
                self._schema(decode_json(record))
            elif kind in GRIDS:
                yield from self._grid(record, kind)
            elif kind == EVENTS and any(name in bytes(record) for name in self._quoted):
                yield from self._logged(decode_json(record))

    def rest(self) -> Iterator[tuple[Mapping[str, Any], RulePlace, int, float]]:
        """Yield the windows that are open, as they are: nothing more is measured."""
        for (rule, place), window in self._open.items():
            yield self._of[rule], place, window.number, window.value(self._of[rule]["when"]["statistic"])
        self._open.clear()

    def _schema(self, schema: Mapping[str, Any]) -> None:
        names = [metric["name"] for metric in schema["metrics"]]
        wanted = [(at, name) for at, name in enumerate(names) if name in self._rules]
        if len(self._columns) >= _MOST_SCHEMAS:
            self._columns.clear()
        self._columns[schema["id"]] = None
        if wanted:
            places = [place_of(schema["group"], schema["node"], device) for device in schema["devices"]]
            self._columns[schema["id"]] = places, len(names), wanted

    def _grid(self, record: memoryview, kind: int) -> Iterator[tuple[Mapping[str, Any], RulePlace, int, float]]:
        number, moment, values = decode_grid(record, kind)
        columns = self._columns.get(number)
        if columns is None:
            return
        places, width, wanted = columns
        for at, name in wanted:
            for row, place in enumerate(places):
                yield from self._value(name, place, moment, values[row * width + at])

    def _logged(self, told: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], RulePlace, int, float]]:
        place = RulePlace((str(told["node"]),), (int(told["rank"]),))
        for _, moment, _, values in told["events"]:
            for name in values:
                if name in self._rules and isinstance(values[name], (int, float)):
                    yield from self._value(name, place, moment, values[name])

    def _value(
        self, name: str, place: RulePlace, moment: float, value: float
    ) -> Iterator[tuple[Mapping[str, Any], RulePlace, int, float]]:
        if value != value:
            return
        for rule in self._rules[name]:
            number, key = int(moment // rule["when"]["over"]), (rule["id"], place)
            window = self._open.get(key)
            if window is None or number > window.number:
                if window is not None:
                    yield rule, place, window.number, window.value(rule["when"]["statistic"])
                elif len(self._open) >= _MOST_PLACES:
                    self.full = True
                    continue
                window = self._open[key] = _Window(number)
            if number == window.number:
                window.take(value)


def place_of(group: str, node: str, device: Any) -> RulePlace:
    """Return what a device of a group is: a rank, the node itself, or something on the node."""
    if group == "rank":
        return RulePlace((node,) if node else (), (int(device),))
    if group == "node":
        return RulePlace((str(device),))
    return RulePlace((node,) if node else (), (), f"{group} {device}")
