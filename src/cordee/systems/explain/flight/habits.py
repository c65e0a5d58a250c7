"""What one rank's ring says of its ways: whether its last step went as those before, as those of others went, and in which order it calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cordee.systems.explain.flight.rings import RingGroup, Rings, RingTransfer

Token = tuple[str, str]
Look = Callable[[int], list[dict[str, Any]]]
_LAST = 6  # stretches that are compared with those before them
_MOST_SINCE, _MOST_SIBLINGS = 64, 24


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


def unlike_siblings(rank: int, what: RingTransfer, rings: Rings, look: Look) -> bool | None:
    """Return whether a rank that waits in a transfer came there another way than those that do the same work.

    These are ranks of one of its groups whose calls before the last one of that group went alike; what each called since then is
    compared: in which kind of group, what, and transfers of how much.

    Returns:
        True where at least two did the same, and it something else; False where all did as it did; None where that cannot be said.
    """
    mine = look(rank)
    at = next(
        (place for place, one in enumerate(mine) if one.get("time_created_ns") == what.time and _peers(one)), None
    )
    if at is None:
        return None
    alike: set[int] = set()
    others: dict[int, tuple[str, ...]] = {}
    for group in rings.groups:
        if rank not in group.spans or len(group.spans) < 2:
            continue
        calls = [place for place in range(at) if _is_call(mine[place], group)]
        if not calls or at - calls[-1] > _MOST_SINCE:
            continue
        sequence = mine[calls[-1]]["collective_seq_id"]
        since = _ways(mine[calls[-1] + 1 : at + 1])
        before = _ways(mine[calls[-2] + 1 : calls[-1]]) if len(calls) > 1 else None
        if before is None and group.whole:
            continue  # nobody says who does the same work
        for sibling in [one for one in group.spans if one != rank][:_MOST_SIBLINGS]:
            theirs = look(sibling)
            places = [place for place, one in enumerate(theirs) if _is_call(one, group)]
            here = next((count for count, place in enumerate(places) if _seq(theirs[place]) == sequence), None)
            if here is None:
                continue
            if before is not None and (here == 0 or _ways(theirs[places[here - 1] + 1 : places[here]]) != before):
                continue
            found = _ways(theirs[places[here] + 1 :][: len(since)])
            apart = next(
                (place for place, pair in enumerate(zip(found, since, strict=False)) if pair[0] != pair[1]), None
            )
            if apart is not None:
                others.setdefault(sibling, found[apart])
            elif len(found) == len(since):
                alike.add(sibling)
    if alike - set(others):
        return None if others else False
    return True if len(others) > 1 and len(set(others.values())) == 1 else None


def _is_call(entry: dict[str, Any], group: RingGroup) -> bool:
    return bool(entry["process_group"][0] == group.name) and not entry.get("is_p2p")


def _seq(entry: dict[str, Any]) -> Any:
    return entry["collective_seq_id"]


def _peers(entry: dict[str, Any]) -> bool:
    return "->" in entry["profiling_name"] or "<-" in entry["profiling_name"]


def _ways(entries: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    """Return what was called in which kind of group, without who with whom: the same for all that do the same work."""
    found: list[tuple[str, ...]] = []
    for entry in entries:
        op = str(entry["profiling_name"]).partition(" ")[0]
        sizes = repr(entry.get("input_sizes" if op.endswith("send") else "output_sizes")) if _peers(entry) else ""
        found.append((str(entry["process_group"][1]), op, sizes))
    return found
