"""Who meets whom: disjoint pairs, at random, and by switches where they are known."""

from __future__ import annotations

from random import Random
from typing import Iterable, Optional, Sequence

Pair = tuple[str, str]


def ring_pairs(ring: Sequence[str], turn: int) -> list[Pair]:
    """Return neighbours on a ring, each node at most once, the ring turned by `turn`.

    Of an odd number, the node before the turned ring's first sits out: another one at the next turn.
    """
    turned = [*ring[turn % len(ring) :], *ring[: turn % len(ring)]] if ring else []
    return [(turned[index], turned[index + 1]) for index in range(0, len(turned) - 1, 2)]


def pairs_within(groups: Iterable[Sequence[str]], random: Random) -> list[Pair]:
    """Return pairs within the groups; those who are left of each are paired with each other."""
    pairs: list[Pair] = []
    left: list[str] = []
    for group in groups:
        members = shuffled(group, random)
        pairs += ring_pairs(members, 0)
        left += members[-1:] if len(members) % 2 else []
    return pairs + ring_pairs(left, 0)


def pairs_across(groups: Iterable[Sequence[str]], random: Random, keep: Iterable[str] = ()) -> list[Pair]:
    """Return pairs whose nodes are of different groups, as far as no group has more than half of them.

    Args:
        groups: the nodes by group.
        random: draws them.
        keep: nodes that must not be the one that sits out.
    """
    mixed = shuffled([shuffled(group, random) for group in groups], random)
    mixed.sort(key=len, reverse=True)
    kept = set(keep)
    if sum(map(len, mixed)) % 2:
        spare = next((node for group in mixed for node in group if node not in kept), None)
        mixed = [[node for node in group if node != spare] for group in mixed]
    order = [node for group in mixed for node in group]
    half = len(order) // 2
    return list(zip(order[:half], order[half:]))


def without_repeats(pairs: list[Pair], met: set[frozenset[str]]) -> list[Pair]:
    """Return the pairs with partners exchanged where two have met before, as far as that is possible."""
    pairs = list(pairs)
    for index in range(len(pairs)):
        if frozenset(pairs[index]) not in met:
            continue
        for other in [*range(index + 1, len(pairs)), *range(index)]:
            exchanged = _exchange(pairs[index], pairs[other], met)
            if exchanged is not None:
                pairs[index], pairs[other] = exchanged
                break
    return pairs


def _exchange(one: Pair, two: Pair, met: set[frozenset[str]]) -> Optional[tuple[Pair, Pair]]:
    for first, second in (((one[0], two[1]), (two[0], one[1])), ((one[0], two[0]), (one[1], two[1]))):
        if frozenset(first) not in met and frozenset(second) not in met:
            return first, second
    return None


def partners_for(suspects: Sequence[str], good: Sequence[str], met: set[frozenset[str]], random: Random) -> list[Pair]:
    """Return a good partner for each suspect, one it has not met where there is one; each is taken once."""
    free = shuffled(good, random)
    pairs = []
    for suspect in shuffled(suspects, random):
        new = (index for index in range(len(free)) if frozenset((suspect, free[index])) not in met)
        if free:
            pairs.append((suspect, free.pop(next(new, len(free) - 1))))
    return pairs


def shuffled(items: Sequence, random: Random) -> list:
    """Return the items in a random order."""
    order = list(items)
    random.shuffle(order)
    return order
