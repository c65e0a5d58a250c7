"""What reports for people are made of: how many, which name was meant, lines of a terminal's width, bars."""

from __future__ import annotations

import signal
from typing import Iterable, Optional

COLUMNS = 80


def counted(number: int, noun: str) -> str:
    """Return `1 node`, `2 nodes`, `no nodes`."""
    return f"{number or 'no'} {noun}{'' if number == 1 else 's'}"


def signal_name(number: int) -> str:
    """Return `SIGKILL` for 9; a number without a name stays a number."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def alike(name: str, known: Iterable[str], most: int = 3, cutoff: float = 0.6) -> list[str]:
    """Return the known names that are most like a wrong one, the best first; `cutoff` as in `nearest`."""
    import difflib

    return difflib.get_close_matches(name, list(known), most, cutoff)


def nearest(name: str, known: Iterable[str], cutoff: float = 0.6) -> Optional[str]:
    """Return the known name that is most like a wrong one, None where none is.

    Args:
        cutoff: how alike they must be, 0 to 1; see `difflib.get_close_matches`.
    """
    return next(iter(alike(name, known, 1, cutoff)), None)


def did_you_mean(name: str, known: Iterable[str], otherwise: str, cutoff: float = 0.6) -> str:
    """Return `did you mean X?` for the known name that is most like a wrong one, else `otherwise`."""
    near = nearest(name, known, cutoff)
    return f"did you mean {near}?" if near is not None else otherwise


def bar(share: float, width: int) -> str:
    """Return a bar of blocks for a share of 0 to 1, dotted where it does not reach."""
    filled = round(min(1.0, share) * width)
    return "█" * filled + "·" * (width - filled)


def wrapped(text: str, indent: str = "", first: Optional[str] = None, columns: int = COLUMNS) -> list[str]:
    """Return a text as lines of at most so many columns, words with hyphens whole; none for an empty text.

    Args:
        indent: what each line begins with.
        first: what the first one begins with instead.
    """
    import textwrap

    return textwrap.wrap(
        text,
        columns,
        initial_indent=indent if first is None else first,
        subsequent_indent=indent,
        break_on_hyphens=False,
    )
