"""Lines of the report as text: 80 columns, cut where a program wrote too much."""

from __future__ import annotations

from cordee.core.draw.clean import one_line
from cordee.core.words import wrapped

_MOST_TEXT = 600


def text_lines(text: object, indent: str = "  ", first: str | None = None) -> list[str]:
    """Return a text as lines, the first of which begins with `first`, the others with `indent`."""
    return wrapped(one_line(text, _MOST_TEXT), indent, first) or [(indent if first is None else first).rstrip()]


def fact_lines(name: str, text: object) -> list[str]:
    """Return a fact as lines: its name, and what stands behind it."""
    return text_lines(text, " " * 15, f"  {name:12} ")
