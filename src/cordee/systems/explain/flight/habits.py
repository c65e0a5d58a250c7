"""What one rank's ring says of its ways: whether its last step went as those before, and in which order it calls."""

from __future__ import annotations

from typing import Any

from cordee.systems.explain.flight.rings import RingGroup

Token = tuple[str, str]
_LAST = 6  # stretches that are compared with those before them


def deviates(entries: list[dict[str, Any]], group: RingGroup) -> bool | None:
    """Return whether a rank's last steps differ from those before, calls of `group` being where steps end.

    Returns:
        None where the ring does not reach back far enough.
    """
    stretches: list[list[Token]] = [[]]
    for entry in entries:
        name, said = entry["process_group"][0], entry["profiling_name"]
        if name == group.name and not entry.get("is_p2p"):
            stretches.append([])
        stretches[-1].append((name, said))
    known = False
    for at in range(max(2, len(stretches) - _LAST), len(stretches)):
        now, running = stretches[at], at == len(stretches) - 1
        # What followed the same stretch before; the first stretch began before the ring did.
        usual = [stretches[one] for one in range(2, at) if stretches[one - 1] == stretches[at - 1]]
        if usual and not any((one[: len(now)] if running else one) == now for one in usual):
            return True
        known = known or bool(usual)
    return False if known else None


def same_order(last: dict[str, Any], entries: list[dict[str, Any]], group: RingGroup, sequence: int) -> bool | None:
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
