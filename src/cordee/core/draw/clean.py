"""What programs printed, made fit to be shown: no control characters, no lone surrogates, no endless lines."""

from __future__ import annotations

import re

_UNSHOWN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff\ufffe\uffff]"
)


def clean(text: str) -> str:
    """Return `text` without what a terminal or a page would act on; line ends and tabs stay."""
    return _UNSHOWN.sub("\N{REPLACEMENT CHARACTER}", text)


def one_line(text: object, most: int = 500) -> str:
    """Return `text` as one clean line of at most `most` characters; white space is folded, a cut is shown by `...`."""
    line = clean(" ".join(str(text)[: 4 * most].split()))
    return line if len(line) <= most else line[: max(0, most - 3)] + "..."


def ranges(numbers: list[int]) -> str:
    """Return whole numbers as people write them: `0-3, 8`."""
    return ", ".join(_part(low, high) for low, high in _parts(numbers))


def few_ranges(numbers: list[int], most: int = 12) -> str:
    """Return whole numbers as `ranges` does, with at most so many parts: `0-3, 8 and 90 more`."""
    parts = _parts(numbers)
    more = sum(high - low + 1 for low, high in parts[most:])
    return ", ".join(_part(low, high) for low, high in parts[:most]) + (f" and {more} more" if more else "")


def _part(low: int, high: int) -> str:
    return str(low) if low == high else f"{low}-{high}"


def _parts(numbers: list[int]) -> list[list[int]]:
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return parts
