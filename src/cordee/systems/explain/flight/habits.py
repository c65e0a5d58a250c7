"""What one rank's ring says of its ways: whether its last step went as those before, and in which order it calls."""

from __future__ import annotations

from typing import Any

from cordee.systems.explain.flight.rings import Group

Token = tuple[str, str]


def deviates(entries: list[dict[str, Any]], group: Group, *, stands: bool) -> bool | None:
    """Return whether what a rank did since a call of `group` differs from what it did between such calls before.

    Args:
        stands: the rank is still on its way to the next call, so that its last stretch may be a part of one.

    Returns:
        None where the ring does not reach back far enough.
    """
    stretches: list[list[Token]] = [[]]
    for entry in entries:
        name, said = entry["process_group"][0], entry["profiling_name"]
        if name == group.name and not entry.get("is_p2p"):
            stretches.append([])
        stretches[-1].append((name, said))
    complete = stretches[1:-1]  # the first began before the ring did
    last = stretches[-1] if stands else (complete.pop() if complete else [])
    if not complete or not last:
        return None
    if stands:
        return not any(one[: len(last)] == last for one in complete)
    return last not in complete


def same_order(last: dict[str, Any], entries: list[dict[str, Any]], group: Group, sequence: int) -> bool | None:
    """Return whether another rank made the call `last` before its call of `group` with this number.

    Returns:
        None where it did not make both calls.
    """
    def key(entry: dict[str, Any]) -> tuple[Any, ...]:
        return (entry["process_group"][0], entry["collective_seq_id"])

    if last.get("is_p2p"):
        return None
    for entry in entries:
        if not entry.get("is_p2p"):
            if key(entry) == key(last):
                return True
            if key(entry) == (group.name, sequence):
                break
    return False if any(key(entry) == key(last) for entry in entries if not entry.get("is_p2p")) else None
