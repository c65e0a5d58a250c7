"""Links told from nodes: pairs that stay slow though both their nodes are well with others."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, NamedTuple

from cordee.core.units import format_size
from cordee.systems.vetting.node.judge.matches import Pair
from cordee.systems.vetting.node.judge.pairs import Measurement, PairTest

# A link has recurred when the pair was slow at its first meeting and whenever it met again, this often at least.
_LEAST_MEETINGS = 2
_LEAST_PAIRS = 2
_MOST_RATIO = 2 / 3


class LinkFaults(NamedTuple):
    """Links that are to blame, as documents, and the slow pairs that none of the switches explains.

    `of_node` tells for each node which links to blame it has met, in words.
    """

    links: list[dict[str, Any]]
    lone: list[Pair]
    of_node: dict[str, str]


def find_links(test: PairTest, reference: float) -> LinkFaults:
    """Return the links that are to blame: between two nodes, between two switches, or all above one switch.

    A link between switches needs two slow pairs, and slow ones among two thirds of the pairs that met across it; a switch
    is named alone when its links to all others that were met are slow.
    """
    wanted = max(_LEAST_MEETINGS, 1 + test.policy.retests) if test.policy.retests else _LEAST_MEETINGS
    slow = {pair: met for pair, met in test.slow_pairs(reference).items() if len(met) >= wanted}
    across = _slow_across(test, slow)
    alone = _slow_altogether(test, across)
    links, explained, of_node = [], set(), {}
    for switch in sorted(alone):
        pairs = [pair for ends, members in across.items() if switch in ends for pair in members]
        text = f"link above switch {switch}: {_words(pairs, slow)}; their nodes are well within their switches"
        links.append({"switches": [switch], "text": text})
        explained.update(pairs)
        of_node.update({node: text for pair in pairs for node in pair})
    for ends, pairs in sorted(across.items()):
        if not set(ends) & alone:
            text = f"link between switches {ends[0]} and {ends[1]}: {_words(pairs, slow)}; their nodes are well with others"
            links.append({"switches": list(ends), "text": text})
            explained.update(pairs)
            of_node.update({node: text for pair in pairs for node in pair})
    lone = sorted(pair for pair in slow if pair not in explained)
    for a, b in lone:
        text = f"link between {a} and {b}: {_rates(slow[(a, b)])}; both are well with others"
        links.append({"nodes": [a, b], "text": text})
        of_node.update({a: text, b: text})
    return LinkFaults(links, lone, of_node)


def _slow_across(test: PairTest, slow: dict[Pair, list[Measurement]]) -> dict[Pair, list[Pair]]:
    """Return the slow pairs by the two switches that they cross, where most that cross them are slow."""
    met: dict[Pair, set[frozenset[str]]] = defaultdict(set)
    for one in test.measured:
        met[_ends(test, one.nodes)].add(frozenset(one.nodes))
    crossing: dict[Pair, list[Pair]] = defaultdict(list)
    for pair in slow:
        ends = _ends(test, pair)
        if ends[0] and ends[0] != ends[1]:
            crossing[ends].append(pair)
    return {
        ends: pairs
        for ends, pairs in crossing.items()
        if len(pairs) >= _LEAST_PAIRS and len(pairs) >= _MOST_RATIO * len(met[ends])
    }


def _slow_altogether(test: PairTest, across: dict[Pair, list[Pair]]) -> set[str]:
    """Return the switches whose pairs with every other switch are slow, two others at least."""
    others: dict[str, set[str]] = defaultdict(set)
    for one in test.measured:
        s, t = _ends(test, one.nodes)
        if s and s != t:
            others[s].add(t)
            others[t].add(s)
    found = set()
    for switch, met in others.items():
        bad = {other for ends in across for other in ends if switch in ends and other != switch}
        if len(met) >= 2 and bad == met:
            found.add(switch)
    # When all are slow with all, it is no single switch.
    return found if len(found) < len(others) else set()


def _ends(test: PairTest, pair: Pair) -> Pair:
    """Return the switches of a pair in their order; an empty one comes first and means that it is not known."""
    s, t = sorted(test.switch_of.get(node, "") for node in pair)
    return s, t


def _words(pairs: list[Pair], slow: dict[Pair, list[Measurement]]) -> str:
    a, b = pairs[0]
    return f"{len(pairs)} pairs are slow across it, first {a} and {b} with {_rates(slow[pairs[0]])}"


def _rates(meetings: list[Measurement]) -> str:
    rates = [one.bytes_per_s for one in meetings if one.bytes_per_s is not None]
    if not rates:
        return f"{len(meetings)} times without data ({meetings[-1].reason})"
    return f"{format_size(max(rates))}/s at best in {len(meetings)} meetings"
