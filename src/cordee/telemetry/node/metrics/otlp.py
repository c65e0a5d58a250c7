"""OTLP metrics, in protobuf or JSON, as points: the few messages that matter, read without a library for either.

Field numbers are those of opentelemetry/proto/metrics/v1/metrics.proto, common.proto and resource.proto, version 1; fields
that are not known are passed over, as protobuf wants it.
"""

from __future__ import annotations

import json
import struct
from typing import Any, Iterator, NamedTuple, Optional, Union

from cordee.telemetry.node.metrics.points import COUNTER, DELTA, DELTA_HISTOGRAM, GAUGE, HISTOGRAM, Point, labels_of

MOST_POINTS = 20_000
MOST_FIELDS = 1_000_000
_DELTA = 1
_NO_VALUE = 1  # of a point's flags
_DOUBLE, _FIXED, _SIGNED = struct.Struct("<d"), struct.Struct("<Q"), struct.Struct("<q")
_MOST_DIGITS, _MOST_ATTRIBUTES, _LONGEST_NAME = 20, 64, 500


class Batch(NamedTuple):
    """The points of one resource, and what is said of it."""

    resource: dict[str, str]
    points: list[Point]


def read_protobuf(data: bytes) -> list[Batch]:
    """Return what an ExportMetricsServiceRequest holds.

    Raises:
        ValueError: it is none, or has more than 20,000 points or 1,000,000 fields.
    """
    return _Reader().request(_Message(memoryview(data), _Budget()))


def read_json(data: bytes) -> list[Batch]:
    """Return what an ExportMetricsServiceRequest in JSON holds.

    Raises:
        ValueError: it is none, or has more than 20,000 points.
    """
    try:
        document = json.loads(data, parse_int=_bounded_int)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    if not isinstance(document, dict):
        raise ValueError("it is no object")
    return _Reader().request(_Object(document))


class _Budget:
    """How many more fields are read: a small body may hold millions of empty ones."""

    def __init__(self) -> None:
        self.left = MOST_FIELDS


class _Message:
    """A message in protobuf: fields by number."""

    def __init__(self, data: memoryview, budget: _Budget) -> None:
        self._budget = budget
        self._fields: dict[int, list[Union[int, memoryview]]] = {}
        at, end = 0, len(data)
        while at < end:
            budget.left -= 1
            if budget.left < 0:
                raise ValueError(f"more than {MOST_FIELDS} fields at once")
            key, at = _varint(data, at)
            number, wire = key >> 3, key & 7
            value: Union[int, memoryview]
            if wire == 0:
                value, at = _varint(data, at)
            elif wire in (1, 2, 5):
                length, at = (8, at) if wire == 1 else (4, at) if wire == 5 else _varint(data, at)
                if length > end - at:
                    raise ValueError("a field is longer than its message")
                value = data[at : at + length]
                at += length
            else:
                raise ValueError(f"a field has wire type {wire}")
            self._fields.setdefault(number, []).append(value)

    def messages(self, number: int, name: str) -> Iterator[_Message]:
        for value in self._fields.get(number, ()):
            if isinstance(value, int):
                raise ValueError(f"{name} is no message")
            yield _Message(value, self._budget)

    def one(self, number: int, name: str) -> Optional[_Message]:
        return next(self.messages(number, name), None)

    def text(self, number: int, name: str) -> str:
        value = self._last(number)
        return bytes(value).decode("utf-8", "replace") if isinstance(value, memoryview) else ""

    def whole(self, number: int, name: str) -> int:
        value = self._last(number)
        if isinstance(value, memoryview):
            return int(_FIXED.unpack(value)[0]) if len(value) == 8 else 0
        return value or 0

    def signed(self, number: int, name: str) -> Optional[float]:
        value = self._last(number)
        if isinstance(value, memoryview):
            return float(_SIGNED.unpack(value)[0]) if len(value) == 8 else None
        return None if value is None else float(value - (1 << 64) if value >> 63 else value)

    def double(self, number: int, name: str) -> Optional[float]:
        value = self._last(number)
        return float(_DOUBLE.unpack(value)[0]) if isinstance(value, memoryview) and len(value) == 8 else None

    def _last(self, number: int) -> Union[int, memoryview, None]:
        values = self._fields.get(number)
        return values[-1] if values else None


class _Object:
    """The same message in JSON: fields by name, 64-bit integers as text."""

    def __init__(self, document: dict[str, Any]) -> None:
        self._document = document

    def messages(self, number: int, name: str) -> Iterator[_Object]:
        value = self._document.get(name)
        for one in value if isinstance(value, list) else () if value is None else (value,):
            if not isinstance(one, dict):
                raise ValueError(f"{name} is no object")
            yield _Object(one)

    def one(self, number: int, name: str) -> Optional[_Object]:
        return next(self.messages(number, name), None)

    def text(self, number: int, name: str) -> str:
        value = self._document.get(name)
        return value if isinstance(value, str) else ""

    def whole(self, number: int, name: str) -> int:
        found = self._document.get(name) or 0
        return _bounded_int(found) if isinstance(found, str) else int(found)

    def signed(self, number: int, name: str) -> Optional[float]:
        return self.double(number, name)

    def double(self, number: int, name: str) -> Optional[float]:
        found = self._document.get(name)
        return None if found is None else float(found)


_Any = Union[_Message, _Object]


class _Reader:
    """Walks through a request, whatever it is written in."""

    def __init__(self) -> None:
        self._left = MOST_POINTS

    def request(self, request: _Any) -> list[Batch]:
        try:
            return [self._batch(one) for one in request.messages(1, "resourceMetrics")]
        except (TypeError, OverflowError, struct.error) as error:
            raise ValueError(str(error)) from None

    def _batch(self, message: _Any) -> Batch:
        resource = message.one(1, "resource")
        points: list[Point] = []
        for scope in message.messages(2, "scopeMetrics"):
            for metric in scope.messages(2, "metrics"):
                points += self._metric(metric)
        return Batch(_attributes(resource, 1) if resource is not None else {}, points)

    def _metric(self, metric: _Any) -> Iterator[Point]:
        name, unit = metric.text(1, "name")[:_LONGEST_NAME], metric.text(3, "unit")[:_LONGEST_NAME]
        for number, field in ((5, "gauge"), (7, "sum")):
            data = metric.one(number, field)
            if data is not None:
                kind = GAUGE if field == "gauge" else _kind_of_sum(data)
                yield from self._numbers(data, name, unit, kind)
        for number, field in ((9, "histogram"), (10, "exponentialHistogram"), (11, "summary")):
            data = metric.one(number, field)
            if data is not None:
                delta = field != "summary" and data.whole(2, "aggregationTemporality") == _DELTA
                attributes = 9 if field == "histogram" else 1 if field == "exponentialHistogram" else 7
                yield from self._histograms(data, name, unit, DELTA_HISTOGRAM if delta else HISTOGRAM, attributes)

    def _numbers(self, data: _Any, name: str, unit: str, kind: str) -> Iterator[Point]:
        for point in self._points(data):
            value = point.double(4, "asDouble")
            value = point.signed(6, "asInt") if value is None else value
            if value is not None and not point.whole(8, "flags") & _NO_VALUE:
                moment, start = _times(point)
                yield Point(name, labels_of(_attributes(point, 7)), kind, moment, value, 0.0, start, unit)

    def _histograms(self, data: _Any, name: str, unit: str, kind: str, attributes: int) -> Iterator[Point]:
        for point in self._points(data):
            value, count = point.double(5, "sum"), point.whole(4, "count")
            flags = point.whole(10 if attributes != 7 else 8, "flags")
            if value is not None and not flags & _NO_VALUE:
                moment, start = _times(point)
                yield Point(name, labels_of(_attributes(point, attributes)), kind, moment, value, count, start, unit)

    def _points(self, data: _Any) -> Iterator[_Any]:
        for point in data.messages(1, "dataPoints"):
            self._left -= 1
            if self._left < 0:
                raise ValueError(f"more than {MOST_POINTS} points at once")
            yield point


def _kind_of_sum(data: _Any) -> str:
    """A sum that may fall is a level, as it stands; what only grows is a rate. Differences are always rates."""
    if data.whole(2, "aggregationTemporality") == _DELTA:
        return DELTA
    return COUNTER if data.whole(3, "isMonotonic") else GAUGE


def _times(point: _Any) -> tuple[float, float]:
    return point.whole(3, "timeUnixNano") / 1e9, point.whole(2, "startTimeUnixNano") / 1e9


def _attributes(message: _Any, number: int) -> dict[str, str]:
    found = {}
    for pair in message.messages(number, "attributes"):
        value = pair.one(2, "value")
        if value is not None:
            found[pair.text(1, "key")[:_LONGEST_NAME]] = _value(value)
        if len(found) == _MOST_ATTRIBUTES:
            break
    return found


def _value(value: _Any) -> str:
    text = value.text(1, "stringValue")
    if text:
        return text[:_LONGEST_NAME]
    number = value.double(4, "doubleValue")
    if number is not None:
        return f"{number:g}"
    number = value.signed(3, "intValue")
    if number is not None:
        return f"{number:.0f}"
    return "true" if value.whole(2, "boolValue") else ""


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 70:
        if at >= len(data):
            raise ValueError("it ends inside a number")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & ((1 << 64) - 1), at
        shift += 7
    raise ValueError("a number is longer than ten bytes")


def _bounded_int(text: str) -> int:
    if len(text) > _MOST_DIGITS:
        raise ValueError("a number has more than 20 digits")
    return int(text)
