"""Names of nodes as Slurm and its field write them, compressed: `n[1-3,07],login1`."""

from __future__ import annotations

from itertools import groupby
from typing import Sequence

from cordee.core.errors import CordeeError

_DIGITS = "0123456789"
_MOST_NODES = 1_000_000
_SHOWN = 200


def expand_nodes(nodes: str) -> list[str]:
    """Return the names in a compressed list such as `n[1-3,07],login1`, in its order.

    Raises:
        CordeeError: the list is malformed, or names more than a million.
    """
    names: list[str] = []
    for part in _split_outside_brackets(nodes):
        names += _expand(part, nodes)
        _limit(len(names), nodes)
    return names


def fold_nodes(names: Sequence[str]) -> str:
    """Return a list of nodes as Slurm writes it, in the order given: `n[1-3,7],login1`."""
    parts = []
    for head, group in groupby(names, key=lambda name: name.rstrip(_DIGITS)):
        ranges: list[tuple[str, str]] = []
        for name in group:
            digits = name[len(head) :]
            if digits and ranges and _follows(ranges[-1][1], digits):
                ranges[-1] = (ranges[-1][0], digits)
            else:
                ranges.append((digits, digits))
        texts = [low if low == high else f"{low}-{high}" for low, high in ranges]
        single = len(texts) == 1 and "-" not in texts[0]
        parts.append(head + (texts[0] if single else f"[{','.join(texts)}]"))
    return ",".join(parts)


def _follows(last: str, digits: str) -> bool:
    same_form = len(last) == len(digits) or not (last.startswith("0") or digits.startswith("0"))
    return same_form and int(digits) == int(last) + 1


def _split_outside_brackets(text: str) -> list[str]:
    parts, depth, start = [], 0, 0
    for index, char in enumerate(text):
        depth += (char == "[") - (char == "]")
        if char == "," and depth == 0:
            parts.append(text[start:index])
            start = index + 1
    parts.append(text[start:])
    return [part.strip() for part in parts if part.strip()]


def _expand(part: str, whole: str) -> list[str]:
    head, bracket, rest = part.partition("[")
    if not bracket:
        return [part]
    inside, closing, tail = rest.partition("]")
    if not closing:
        raise CordeeError("a list of nodes has no closing bracket", given=whole[:_SHOWN], allowed="n[1-3,7]")
    tails = _expand(tail, whole) if tail else [""]
    names: list[str] = []
    for piece in inside.split(","):
        low, dash, high = piece.partition("-")
        if not low.isdigit() or (dash and not (high.isdigit() and int(low) <= int(high))):
            raise CordeeError("a list of nodes has a range that is none", given=whole[:_SHOWN], allowed="n[1-3,7]")
        _limit(len(names) + (int(high if dash else low) - int(low) + 1) * len(tails), whole)
        for number in range(int(low), int(high if dash else low) + 1):
            names += [f"{head}{number:0{len(low)}d}{end}" for end in tails]
    return names


def _limit(count: int, whole: str) -> None:
    if count > _MOST_NODES:
        allowed = f"at most {_MOST_NODES} nodes"
        raise CordeeError("a list of nodes names too many", given=whole[:_SHOWN], allowed=allowed)
