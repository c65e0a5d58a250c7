"""What the place of a job is in numbers: it is reported, not graded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from cordee.core.network import Network
from cordee.systems.explain.topology.job import PlacedJob

# Groups of a pipeline have ends; all others are rings.
_OPEN = ("pp",)


@dataclass(frozen=True)
class LevelSpan:
    """How a job lies over the switches, or the groups, of one level.

    Attributes:
        level: `switch`, `group`, ...
        spanned: how many hold nodes of the job.
        least_possible: how many would hold it if the largest were empty for it.
        there: how many there are.
        largest: the one that holds most of its nodes, with how many.
        partly: how many hold nodes of the job and others as well.
        lone: how many hold one node of it and no more.
    """

    level: str
    spanned: int
    least_possible: int
    there: int
    largest: tuple[str, int]
    partly: int
    lone: int


@dataclass(frozen=True)
class Edges:
    """Neighbours in one dimension: pairs of ranks, and how many are on two nodes, and below two of each level.

    `unknown` are those of which a node is in no switch.
    """

    pairs: int
    nodes: int
    crossing: dict[str, int]
    unknown: int = 0


@dataclass(frozen=True)
class Figures:
    """A job's place.

    Attributes:
        spans: by level, the lowest first; empty where the network is not known.
        mean_hops, most_hops: switches on the way between two nodes, over all pairs; None where no pair's way is known.
        known_pairs: share of the pairs of nodes whose way is known.
        edges: by dimension.
        unplaced: nodes that are in no switch.
        leaf_of: the leaf of each node that has one.
    """

    spans: tuple[LevelSpan, ...] = ()
    mean_hops: float | None = None
    most_hops: int | None = None
    known_pairs: float | None = None
    edges: dict[str, Edges] = field(default_factory=dict)
    unplaced: tuple[str, ...] = ()
    leaf_of: dict[str, str] = field(default_factory=dict)


def figures(job: PlacedJob, network: Network | None) -> Figures:
    """Return the figures of a job on a network; without one, only neighbours on two nodes are counted."""
    known = network.leaf_of if network is not None else {}
    leaf_of = {}
    for node in job.nodes:
        leaf = known.get(node) or known.get(node.partition(".")[0])
        if leaf is not None:
            leaf_of[node] = leaf
    levels = {level.name: level.of for level in network.levels} if network is not None else {}
    edges = {name: _edges(job, name, leaf_of, levels) for name in job.sizes if job.sizes[name] > 1 and job.places}
    if network is None:
        return Figures(edges=edges)
    spans = tuple(_span(name, of, network, leaf_of) for name, of in levels.items()) if leaf_of else ()
    mean, most, share = _hops(network, Counter(leaf_of.values()))
    unplaced = tuple(node for node in job.nodes if node not in leaf_of)
    return Figures(spans, mean, most, share, edges, unplaced, leaf_of)


def document(job: PlacedJob, network: Network | None, found: Figures) -> dict[str, Any]:
    """Return the figures as JSON."""
    by_node: dict[str, list[int]] = {}
    for rank, node in sorted(job.ranks.items()):
        by_node.setdefault(node, []).append(rank)
    levels = network.levels if network is not None else ()
    leaf = found.leaf_of
    return {
        "of": job.name,
        "nodes": len(job.nodes),
        "ranks": len(job.ranks),
        "mesh": job.sizes if job.places else {},
        "switches_spanned": found.spans[0].spanned if found.spans else None,
        "least_possible": found.spans[0].least_possible if found.spans else None,
        "levels": [
            {**vars(span), "largest": {"name": span.largest[0], "nodes": span.largest[1]}} for span in found.spans
        ],
        "hops": {"mean": found.mean_hops, "most": found.most_hops, "known_pairs": found.known_pairs},
        "edges": {
            name: {
                "pairs": one.pairs,
                "unknown": one.unknown,
                "node": _share(one.nodes, one.pairs),
                **{level: _share(count, one.pairs - one.unknown) for level, count in one.crossing.items()},
            }
            for name, one in found.edges.items()
        },
        "network": network
        and {
            "kind": network.kind,
            "source": network.source,
            "nodes": sum(map(len, network.leaves.values())),
            "faults": list(network.faults),
        },
        "unplaced": list(found.unplaced),
        "placed": [
            {
                "node": node,
                **{level.name: level.of[leaf[node]] for level in levels if node in leaf},
                "ranks": by_node.get(node, []),
            }
            for node in job.nodes
        ],
    }


def _share(count: int, of: int) -> float | None:
    return round(count / of, 6) if of else None


def _span(name: str, of: Mapping[str, str], network: Network, leaf_of: Mapping[str, str]) -> LevelSpan:
    sizes: Counter[str] = Counter()
    for leaf, nodes in network.leaves.items():
        sizes[of[leaf]] += len(nodes)
    held = Counter(of[leaf] for leaf in leaf_of.values())
    left, least = len(leaf_of), 0
    for size in sorted(sizes.values(), reverse=True):
        if left <= 0:
            break
        left, least = left - size, least + 1
    return LevelSpan(
        level=name,
        spanned=len(held),
        least_possible=least,
        there=len(sizes),
        largest=held.most_common(1)[0],
        partly=sum(sizes[one] > count for one, count in held.items()),
        lone=sum(count == 1 for count in held.values()),
    )


def _hops(network: Network, held: Mapping[str, int]) -> tuple[float | None, int | None, float | None]:
    """Return the mean and the greatest number of switches between two nodes, and the share of the pairs that it is of."""
    total, pairs, most = 0, 0, 0
    for leaf, all_hops in network.hops_from(held):
        for other, hops in all_hops.items():
            here = held[leaf] * (held.get(other, 0) - (other == leaf))
            if here:
                total, pairs, most = total + here * hops, pairs + here, max(most, hops)
    nodes = sum(held.values())
    if not pairs:
        return None, None, None
    return total / pairs, most, pairs / (nodes * (nodes - 1))


def _edges(job: PlacedJob, name: str, leaf_of: Mapping[str, str], levels: Mapping[str, Mapping[str, str]]) -> Edges:
    pairs = nodes = unknown = 0
    crossing = dict.fromkeys(levels, 0)
    for one, other in _neighbours(job, name):
        here, there = job.ranks[one], job.ranks[other]
        pairs += 1
        nodes += here != there
        leaves = (leaf_of.get(here), leaf_of.get(there))
        if leaves[0] is None or leaves[1] is None:
            unknown += here != there
        elif leaves[0] != leaves[1]:
            for level, of in levels.items():
                crossing[level] += of[leaves[0]] != of[leaves[1]]
    return Edges(pairs, nodes, crossing, unknown)


def _neighbours(job: PlacedJob, name: str) -> Iterator[tuple[int, int]]:
    """Yield pairs of ranks that differ in one dimension, by one; in a group that is a ring the last and the first too."""
    others = [other for other in job.sizes if other != name]
    groups: dict[tuple[int, ...], dict[int, int]] = {}
    for rank, place in job.places.items():
        if name in place:
            groups.setdefault(tuple(place.get(other, 0) for other in others), {})[place[name]] = rank
    size = job.sizes[name]
    for members in groups.values():
        for index, rank in members.items():
            last = index + 1 == size
            after = members.get(0 if last else index + 1)
            if after is not None and not (last and (name in _OPEN or size <= 2)):
                yield rank, after
