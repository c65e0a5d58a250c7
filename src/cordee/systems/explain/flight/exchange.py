"""Who broke an all-to-all: what each rank sends and expects now, beside what it did in its steps before.

With lists of tensors a dump says who sends how much to whom, and each pair is compared. With one tensor only sums are there, and a
rank's own history decides: who does as always is not blamed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from math import prod
from typing import Any

from cordee.systems.explain.flight.habits import Look
from cordee.systems.explain.flight.rings import ALL_TO_ALL
from cordee.systems.explain.flight.verdict import UNKNOWN, FlightVerdict, Stuck

_CONTEXT = 3
_MOST_PAIRS = 8
_Amount = tuple[tuple[int, ...], tuple[int, ...]]  # elements of each tensor that is sent, and that is expected


def exchange(stuck: Stuck, members: Collection[int], look: Look) -> FlightVerdict | None:
    """Return the verdict about an all-to-all that all ranks with dumps have called; None where nothing speaks against one of them."""
    now: dict[int, _Amount] = {}
    drift: dict[int, int] = {}
    steady, changed = set(), set()
    for rank in stuck.arrived:
        calls = [one for one in look(rank) if one["process_group"][0] == stuck.group.name and not one.get("is_p2p")]
        at = next((at for at, one in enumerate(calls) if one["collective_seq_id"] == stuck.sequence), None)
        amount = None if at is None else _amount(calls[at])
        if at is None or amount is None:
            continue
        now[rank] = amount
        before = _before(calls, at)
        drift[rank] = _net(amount) - (_net(before[-1]) if before else 0)
        if amount in before and (len(before) == 1 or _regular(before)):
            steady.add(rank)
        elif _regular(before):
            changed.add(rank)
    pairs = _pairs(list(members), now)
    if pairs is None:
        return _of_sums(stuck, now, drift, steady, changed)
    if not pairs:
        return None
    odd, suspects = _of_pairs(pairs, steady, 2 * len(steady) > len(now))
    told = [f"rank {one} sends {now[one][0][to]} to rank {other}, which expects {got}" for one, other, to, got in pairs]
    more = f", and {len(told) - _MOST_PAIRS} pairs more" if len(told) > _MOST_PAIRS else ""
    right = next((rank for rank in now if rank not in odd), None) if odd else None
    why = ", ".join(told[:_MOST_PAIRS]) + more
    return FlightVerdict("all-to-all", odd, stuck.group, stuck.sequence, right, suspects, why=why)


def _of_sums(
    stuck: Stuck, now: dict[int, _Amount], drift: dict[int, int], steady: set[int], changed: set[int]
) -> FlightVerdict | None:
    wrong = not stuck.unseen and sum(map(_net, now.values())) != 0
    held = [rank for rank in now if not stuck.group.spans[rank].started]
    if not now or (not wrong and 0 < 2 * len(held) <= len(now)):
        return None  # that a GPU has not started it says more
    odd: Iterable[int] = ()
    suspects: Iterable[int] = ()
    if len(steady) + len(changed) == len(now):
        if 2 * len(changed) < len(now):
            odd = changed
        elif wrong:
            suspects = now
    elif wrong:
        usual, count = Counter(now.values()).most_common(1)[0]
        if _net(usual) == 0 and 2 * count > len(now):
            odd = [rank for rank, amount in now.items() if amount != usual and rank not in steady]
            drift = {rank: _net(now[rank]) for rank in odd}
        else:
            odd = () if len(now) - len(steady) > 1 else now.keys() - steady
            suspects = () if odd else now.keys() - steady
    # What one of them sends more another one may expect: then both may be right.
    each = [drift[rank] for rank in odd]
    if len(each) > 1 and (min(each) < 0 < max(each) or not any(each)):
        odd, suspects = (), odd
    if wrong and not odd and not suspects:
        suspects = now
    if not odd and not suspects:
        return None
    why = "what ranks send and what they expect does not add up"
    if not wrong:
        why = "the others send and expect what they did in the steps before"
        suspects = {*suspects, *stuck.unseen} if suspects else ()
    blamed = tuple(sorted(odd))
    right = next((rank for rank in now if rank not in blamed), None) if blamed else None
    kind = "all-to-all" if wrong or blamed else UNKNOWN
    return FlightVerdict(kind, blamed, stuck.group, stuck.sequence, right, tuple(sorted(suspects)), why=why)


def _pairs(members: list[int], now: dict[int, _Amount]) -> list[tuple[int, int, int, int]] | None:
    """Return who sends another amount to whom than that one expects: sender, receiver, its place, the amount that it expects.

    Returns:
        None where dumps do not say who sends what to whom.
    """
    size = len(members)
    if size < 2 or not now or any(len(one) != size for amount in now.values() for one in amount):
        return None
    there = [(place, rank) for place, rank in enumerate(members) if rank in now]
    return [
        (one, other, to, now[other][1][of])
        for of, one in there
        for to, other in there
        if now[one][0][to] != now[other][1][of]
    ]


def _of_pairs(
    pairs: list[tuple[int, int, int, int]], steady: set[int], most: bool
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return who is to blame for pairs that differ, and who may be: a pair's other rank where most, and one of it, do as before."""
    left = {(min(one, other), max(one, other)) for one, other, _, _ in pairs}
    odd: set[int] = set()
    if most:
        odd = {rank for pair in left if len(steady.intersection(pair)) == 1 for rank in pair if rank not in steady}
    while left := {pair for pair in left if not odd.intersection(pair)}:
        count = Counter(rank for pair in left for rank in pair)
        top = {rank for rank in count if count[rank] == max(count.values())}
        near = {rank for pair in left if top.intersection(pair) for rank in pair}
        if max(count.values()) < 2 or 2 * len(top) >= len(near) or top & steady:
            break
        odd |= top
    return tuple(sorted(odd)), tuple(sorted({rank for pair in left for rank in pair}))


def _before(calls: list[dict[str, Any]], at: int) -> list[_Amount]:
    """Return what a rank exchanged in the same place of its steps before, which what it called then tells."""

    def exact(entry: dict[str, Any]) -> Any:
        return entry["profiling_name"], _amount(entry)

    def name(entry: dict[str, Any]) -> Any:
        return entry["profiling_name"]

    for key, length in ((exact, _CONTEXT), (name, _CONTEXT), (name, 0)):
        keys = [key(entry) for entry in calls[:at]]
        found = [
            amount
            for place in range(length, at)
            if str(calls[place]["profiling_name"]).rpartition(":")[2] in ALL_TO_ALL
            and keys[place - length : place] == keys[at - length :]
            and (amount := _amount(calls[place])) is not None
        ]
        if len(found) > 1 or (found and not length):
            return found
    return []


def _regular(before: list[_Amount]) -> bool:
    """Return whether each amount came again, as it does where no router decides."""
    return len(before) > 1 and min(Counter(before).values()) > 1


def _net(amount: _Amount) -> int:
    return sum(amount[0]) - sum(amount[1])


def _amount(entry: dict[str, Any]) -> _Amount | None:
    try:
        sent, got = (tuple(prod(size) for size in entry[side]) for side in ("input_sizes", "output_sizes"))
    except (KeyError, TypeError):
        return None
    return (sent, got) if all(type(one) is int for one in (*sent, *got)) else None
