"""What is said of one rule."""

from __future__ import annotations

from typing import NamedTuple


class RuleWords(NamedTuple):
    """One rule in words.

    Attributes:
        what: it is that was seen.
        why: it matters; what has happened.
        next: what to do instead.
    """

    what: str
    why: str
    next: str
