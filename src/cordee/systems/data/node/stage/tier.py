"""Where on this node a data set goes: its memory or its own disk, by size and room, and why."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple, Optional

from cordee.core.units import format_size
from cordee.machine.node_tiers import Tier

# What centres ask for: up to about 10 GB in memory.
MEMORY_BYTES = 10_000_000_000


class StagingDecision(NamedTuple):
    """Where it goes, None: it is read in place; and why."""

    tier: Optional[Tier]
    reason: str


def decide(to: str, size: int, there: list[Tier], removable: dict[Path, int]) -> StagingDecision:
    """Return where so many bytes go.

    Args:
        to: what was asked for; `auto` may also be nowhere.
        there: the tiers of this node.
        removable: bytes by a tier's folder that nobody uses and that would go for it.
    """
    passed = []
    for tier in there:
        if to not in ("auto", tier.kind):
            continue
        called = "memory" if tier.kind == "memory" else f"the node's disk ({tier.folder})"
        room = tier.room_bytes + removable.get(tier.folder, 0)
        if to == "auto" and tier.kind == "memory" and size > MEMORY_BYTES:
            passed.append(
                f"not {called}, as {format_size(size)} is over the {format_size(MEMORY_BYTES)} that centres put there"
            )
        elif size > room:
            passed.append(
                f"not {called}, as {format_size(size)} do not fit: {format_size(max(0, room))} may be used there"
            )
        else:
            fits = f"{format_size(size)} fit into {called}, where {format_size(room)} may be used"
            return StagingDecision(tier, "; ".join([fits, *passed]))
    if not passed:
        passed.append("this node has no such place" if to != "auto" else "this node has no place of its own")
    return StagingDecision(None, "; ".join(passed))
