"""The clocks of the nodes, held against each other: the median is right, not the one who asks."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple, Optional

from cordee.core.stats import median
from cordee.systems.vetting.node.judge.node_link import VettedNode

_DEFAULT_MAX_SKEW_S = 0.05
_LEAST = 3


class Offset(NamedTuple):
    """How far a clock is ahead of the asker's, and how much of that may be the network, in seconds."""

    offset_s: float
    uncertainty_s: float


async def offsets(members: dict[str, VettedNode]) -> dict[str, Offset]:
    """Return the offset of every clock that answered."""
    answers = await asyncio.gather(*(member.clock() for member in members.values()))
    return {name: Offset(*answer) for name, answer in zip(members, answers) if answer is not None}


def judge(entry: dict[str, Any], found: dict[str, Offset], reports: dict[str, Optional[list[dict[str, Any]]]]) -> None:
    """Make the results of this check fail where a clock is further from the median than allowed.

    Nobody is blamed for a difference that the network may have made, nor with fewer than three clocks.

    Args:
        entry: the check in the protocol; its parameter `max_skew` is in seconds.
        found: by node.
        reports: by node; changed in place.
    """
    if len(found) < _LEAST:
        return
    middle = median(offset.offset_s for offset in found.values())
    limit = float((entry.get("parameters") or {}).get("max_skew") or _DEFAULT_MAX_SKEW_S)
    for node, offset in found.items():
        skew = offset.offset_s - middle
        for result in reports.get(node) or []:
            if result["check"] == entry["check"] and result["name"] == (entry.get("name") or entry["check"]):
                _hold_against(result, skew, offset.uncertainty_s, limit, len(found))


def _hold_against(result: dict[str, Any], skew_s: float, uncertainty_s: float, limit_s: float, count: int) -> None:
    result["facts"]["skew_s"] = round(skew_s, 6)
    if abs(skew_s) - uncertainty_s <= limit_s:
        return
    side = "ahead of" if skew_s > 0 else "behind"
    result.update(
        status="fail",
        cause=None,
        value=round(skew_s, 4),
        unit="s",
        threshold=limit_s,
        reference={"kind": "peer", "value": 0.0, "n": count},
        evidence=f"its clock is {abs(skew_s):.3f} s {side} the median of {count} nodes (give or take {uncertainty_s:.3f} s)",
    )
