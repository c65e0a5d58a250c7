"""Sizes, durations and times: parsed from what people write, printed as people read them."""

from __future__ import annotations

import re
import time
from datetime import datetime, timezone
from typing import Union

_SIZE = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*([KMGTPE]?)(i?)(B?)\s*$", re.IGNORECASE)
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|sec|min|m|h|d|w)(?![a-z])", re.IGNORECASE)
_CLOCK = re.compile(r"^(?:(\d+)-)?(\d{1,2}):(\d{2})(?::(\d{2}))?$")
_BANDWIDTH = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*([KMGTPE]?)(i?)(B|bit)(?:/s|ps)\s*$", re.IGNORECASE)
_DIGITS = re.compile(r"(\d+)")
_SECONDS = {"ms": 0.001, "s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "w": 604800}

SIZE_FORMS = 'a number of bytes or a size such as "512MB", "64GB" (powers of 1000), "8GiB" (powers of 1024)'
DURATION_FORMS = 'a number of seconds, or a duration such as "90s", "30min", "2h", "1d12h", "1-12:00:00"'

BANDWIDTH_FORMS = (
    'a number of bytes per second, or a text such as "90GB/s" (powers of 1000), "80GiB/s" (powers of 1024), "200Gbit/s"'
)


def parse_size(value: Union[str, int, float]) -> int:
    """Return a size in bytes.

    Raises:
        ValueError: the value is no size; the message says which forms are allowed.
    """
    if isinstance(value, bool):
        raise ValueError(f"expected {SIZE_FORMS}")
    if isinstance(value, (int, float)):
        if value < 0:
            raise ValueError(f"a size cannot be negative; expected {SIZE_FORMS}")
        return int(value)
    match = _SIZE.match(value)
    if match is None:
        raise ValueError(f"expected {SIZE_FORMS}")
    number, prefix, binary, _ = match.groups()
    power = " KMGTPE".index(prefix.upper()) if prefix else 0
    return int(float(number) * (1024 if binary else 1000) ** power)


def parse_bandwidth(value: Union[str, int, float]) -> float:
    """Return a bandwidth in bytes per second.

    Raises:
        ValueError: the value is no bandwidth, or `b` leaves open whether bits are meant; the message says which forms
            are allowed.
    """
    if isinstance(value, bool):
        raise ValueError(f"expected {BANDWIDTH_FORMS}")
    if isinstance(value, (int, float)):
        if value < 0:
            raise ValueError(f"a bandwidth cannot be negative; expected {BANDWIDTH_FORMS}")
        return float(value)
    match = _BANDWIDTH.match(value)
    if match is None or match.group(4) == "b":
        raise ValueError(f"expected {BANDWIDTH_FORMS}")
    number, prefix, binary, unit = match.groups()
    power = " KMGTPE".index(prefix.upper()) if prefix else 0
    bytes_per_unit = float((1024 if binary else 1000) ** power)
    return float(number) * bytes_per_unit / (8 if unit.lower() == "bit" else 1)


def parse_duration(value: Union[str, int, float]) -> float:
    """Return a duration in seconds; `HH:MM[:SS]` and `D-HH:MM:SS` are read as Slurm reads them.

    Raises:
        ValueError: the value is no duration; the message says which forms are allowed.
    """
    if isinstance(value, bool):
        raise ValueError(f"expected {DURATION_FORMS}")
    if isinstance(value, (int, float)):
        if value < 0:
            raise ValueError(f"a duration cannot be negative; expected {DURATION_FORMS}")
        return float(value)
    text = value.strip()
    clock = _CLOCK.match(text)
    if clock is not None:
        days, first, second, third = clock.groups()
        if third is not None:
            return int(days or 0) * 86400 + int(first) * 3600 + int(second) * 60 + int(third)
        if days is not None:
            return int(days) * 86400 + int(first) * 3600 + int(second) * 60
        return int(first) * 60 + int(second)
    total, end = 0.0, 0
    for match in _DURATION_PART.finditer(text):
        if text[end : match.start()].strip():
            raise ValueError(f"expected {DURATION_FORMS}")
        total += float(match.group(1)) * _SECONDS[match.group(2).lower()]
        end = match.end()
    if end == 0 or text[end:].strip():
        raise ValueError(f"expected {DURATION_FORMS}")
    return total


def natural(name: str) -> list[Union[str, int]]:
    """Return what sorts names as people count them: n2 before n10."""
    return [int(part) if index % 2 else part for index, part in enumerate(_DIGITS.split(name))]


def format_size(size_bytes: float) -> str:
    """Return a size as people read it: `1.5 GB` (powers of 1000)."""
    size = float(size_bytes)
    for unit in ("B", "kB", "MB", "GB", "TB", "PB"):
        if abs(size) < 1000 or unit == "PB":
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.3g} {unit}"
        size /= 1000
    raise AssertionError("unreachable")


def format_duration(seconds: float) -> str:
    """Return a duration as people read it: `0.4 s`, `3 min 20 s`, `2 h 5 min`, `3 d 4 h`."""
    if seconds < 0:
        return "-" + format_duration(-seconds)
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    whole = round(seconds)
    for big, small, big_name, small_name in ((86400, 3600, "d", "h"), (3600, 60, "h", "min"), (60, 1, "min", "s")):
        if whole >= big:
            rest = (whole % big) // small
            return f"{whole // big} {big_name}" + (f" {rest} {small_name}" if rest else "")
    raise AssertionError("unreachable")


def utc_text(seconds: float | None = None) -> str:
    """Return a UTC time in ISO 8601 with milliseconds and Z; now when no epoch seconds are given."""
    moment = datetime.fromtimestamp(time.time() if seconds is None else seconds, timezone.utc)
    return moment.isoformat(timespec="milliseconds")[: -len("+00:00")] + "Z"


def parse_utc(text: str) -> float:
    """Return the epoch seconds of a text written by `utc_text`."""
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
