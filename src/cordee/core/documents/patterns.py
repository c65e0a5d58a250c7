"""Which regular expressions a rule may hold: those that no text can make slow."""

from __future__ import annotations

import importlib
import re
from typing import Any

LONGEST_PATTERN = 300
MOST_STEPS = 10_000
PATTERN_FORMS = (
    f"a regular expression of at most {LONGEST_PATTERN} characters: letters, classes, alternatives, groups, and repeats "
    f"of one character or class whose limits multiply to at most {MOST_STEPS} (`*` and `+` count as 1000); no repeats of "
    "groups except `?`, no references, nothing that looks ahead or back"
)
_ENDLESS = 1000
# The standard library's own parser of patterns, which no stub describes.
parser: Any = importlib.import_module("re._parser")
ops: Any = importlib.import_module("re._constants")
_PLAIN = frozenset([ops.LITERAL, ops.NOT_LITERAL, ops.ANY, ops.IN, ops.AT, ops.RANGE, ops.CATEGORY, ops.NEGATE])
_REPEATS = frozenset([ops.MAX_REPEAT, ops.MIN_REPEAT])


def pattern_fault(pattern: str) -> str | None:
    """Return what is wrong with a pattern, None when a rule may hold it; what is searched is cut to a few thousand
    characters, so that the steps that it may take are bounded."""
    if not pattern:
        return "is empty"
    if len(pattern) > LONGEST_PATTERN:
        return f"has {len(pattern)} characters"
    try:
        tree = parser.parse(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        return f"is not a regular expression: {error}"
    try:
        steps = _steps(tree)
    except ValueError as error:
        return str(error)
    return None if steps <= MOST_STEPS else f"holds repeats that multiply to {steps}"


def _steps(tree: Any) -> int:
    """Return how many ways there are at most to try the pattern at one place of a text."""
    steps = 1
    for operation, arguments in tree:
        if operation in _PLAIN:
            continue
        if operation is ops.BRANCH:
            steps *= sum(_steps(branch) for branch in arguments[1])
        elif operation is ops.SUBPATTERN:
            steps *= _steps(arguments[-1])
        elif operation in _REPEATS:
            steps *= _steps_of_repeat(*arguments)
        else:
            raise ValueError(f"holds {str(operation).lower()}, which a rule may not")
    return steps


def _steps_of_repeat(_least: int, most: int, inner: Any) -> int:
    inner_steps = _steps(inner)
    if most == 1:
        return 1 + inner_steps
    if len(inner) != 1 or inner[0][0] not in _PLAIN:
        raise ValueError("repeats a group")
    return _ENDLESS if most is ops.MAXREPEAT else max(1, int(most))
