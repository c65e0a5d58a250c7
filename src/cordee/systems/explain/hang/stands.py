"""Ranks that stand alike, as a few rows: what their processes do, where they wait in the kernel, and in which collectives. Pure."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from cordee.core.draw.clean import few_ranges
from cordee.systems.explain.hang.evidence import Hang, StandingRank
from cordee.systems.explain.hang.judge import waits_of

_STATES = {
    "R": "uses the processor",
    "S": "sleeps",
    "D": "waits in the kernel, no signal reaches it",
    "T": "stopped by a signal",
    "t": "traced by a debugger",
    "Z": "has ended",
    "X": "has ended",
    "I": "idle",
}
_SILENT = "no other thread of its interpreter runs"
_MOST_NAMES = 4


def alike(hang: Hang) -> list[dict[str, Any]]:
    """Return ranks by what their processes do, the fewest first: they are those that differ.

    A row has `ranks` (as text), `count`, `nodes`, `process`, `wchan`, `waits_for`, `in_collective`, and as the least and the most `steps`, `stands_s`
    and `silent_s`; null: not known.
    """
    rows: dict[tuple[Any, ...], list[StandingRank]] = {}
    for rank in hang.ranks.values():
        waits = any(group.waits for group in rank.groups.values()) if rank.groups else None
        rows.setdefault((_process(rank), rank.wchan, rank.waits_for, waits), []).append(rank)
    found = []
    for (process, wchan, waits_for, waits), ranks in sorted(
        rows.items(), key=lambda row: (len(row[1]), min(one.rank for one in row[1]))
    ):
        found.append(
            {
                "ranks": few_ranges([one.rank for one in ranks]),
                "count": len(ranks),
                "nodes": _few({one.node for one in ranks if one.node}),
                "process": process,
                "wchan": wchan,
                "waits_for": waits_for,
                "in_collective": waits,
                "steps": _span(
                    [one.step if one.step is not None else one.optimizer_steps for one in ranks],
                ),
                "stands_s": _span([one.stands_s for one in ranks]),
                "silent_s": _span([one.beat_age_s for one in ranks]),
            }
        )
    return found


def collectives(hang: Hang) -> list[dict[str, Any]]:
    """Return the collectives that do not end, those first that somebody has not called.

    A row has `group`, `sequence`, `size`, and as texts with their numbers `waiting`, `waiting_count`, `late`, `late_count`.
    """
    waits = sorted(waits_of(hang.ranks), key=lambda one: (not one.late, -len(one.waiting), one.group))
    return [
        {
            "group": one.group,
            "sequence": one.sequence,
            "size": one.size,
            "waiting": few_ranges(list(one.waiting)),
            "waiting_count": len(one.waiting),
            "late": few_ranges(list(one.late)),
            "late_count": len(one.late),
        }
        for one in waits
    ]


def ailing_nodes(hang: Hang) -> list[dict[str, Any]]:
    """Return the nodes of which anything is said: file systems that are `full` or `hanging`, lines of the kernel's log."""
    return [
        {"node": one.node, "full": list(one.full), "hanging": list(one.hanging), "kernel_log": list(one.kernel_log)}
        for _, one in sorted(hang.nodes.items())
        if one.full or one.hanging or one.kernel_log
    ]


def _process(rank: StandingRank) -> str:
    if not rank.collected:
        return "not heard of"
    if rank.why == "stopped" and rank.state not in ("T", "t"):
        return _STATES["T"]
    said = _STATES.get(rank.state, f"in state {rank.state}" if rank.state else "not known")
    return f"{said}; {_SILENT}" if rank.why == "silent" else said


def _few(names: Collection[str]) -> str:
    shown = sorted(names)
    more = len(shown) - _MOST_NAMES
    return ", ".join(shown[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def _span(values: list[Any]) -> list[float] | None:
    known = [value for value in values if value is not None]
    return [min(known), max(known)] if known else None
