"""The pair test without its network: who meets whom, who is retested, and which node or link holds the others back.

Two rounds of disjoint random pairs; then at most two rounds in which suspects meet partners that are well, and slow pairs
of nodes that are both well meet again. A node's score is its best result. One below `ratio` x the higher of the scores'
75th percentile and the fleet's baseline is slow; when too many are, nobody is blamed.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from random import Random
from typing import Any, Iterable, NamedTuple, Optional

from cordee.core.network import leaf_of, members_of
from cordee.core.stats import quantile
from cordee.systems.vetting.node.judge.matches import (
    Pair,
    pairs_across,
    pairs_within,
    partners_for,
    ring_pairs,
    shuffled,
    without_repeats,
)

_RETEST_MARGIN = 0.05
_PERCENTILE = 0.75


@dataclass(frozen=True)
class PairOutcome:
    """What the pair test found.

    Attributes:
        results: by node, the document of its `pair.bandwidth` result, judged.
        pairs: what was measured: `{"round", "nodes": [a, b], "bytes_per_s", "reason"}`.
        links: links that are to blame: `{"nodes": [a, b]}` or `{"switches": [s]}` or `[s, t]`, with `text`.
        confused: `{"check", "nodes", "text", "abort"}` when too many nodes are slow to blame any of them.
    """

    results: dict[str, dict[str, Any]]
    pairs: list[dict[str, Any]] = field(default_factory=list)
    links: list[dict[str, Any]] = field(default_factory=list)
    confused: list[dict[str, Any]] = field(default_factory=list)


class Measurement(NamedTuple):
    """One meeting of two nodes; without a rate, the reason says why, and `late` who is there but did not answer in time."""

    round: int
    nodes: Pair
    bytes_per_s: Optional[float]
    reason: str = ""
    late: tuple[str, ...] = ()

    def partner(self, node: str) -> str:
        """Return whom `node` met."""
        return self.nodes[1] if node == self.nodes[0] else self.nodes[0]


class Out(NamedTuple):
    """Why a node takes part no longer: it did not answer, or cannot test whoever its partner is; `cause` as in results."""

    evidence: str
    cause: str


@dataclass(frozen=True)
class PairPolicy:
    """How pairs are judged.

    Attributes:
        name, required: of the results.
        ratio: a node whose score is below this x the reference is slow.
        min_bytes_per_s: a score below is slow whatever the others have.
        rounds, retests: at most so many of each.
        confusion_ratio: share of the nodes above which nobody is blamed.
        flapping_ratio: the least of a node's results over the best below which it is said to flap.
    """

    name: str = "pair.bandwidth"
    required: bool = True
    ratio: float = 0.88
    min_bytes_per_s: Optional[float] = None
    rounds: int = 2
    retests: int = 2
    confusion_ratio: float = 0.3
    flapping_ratio: float = 0.7

    @property
    def well_ratio(self) -> float:
        """Share of the reference from which a node counts as well; those below are retested with those above."""
        return self.ratio + _RETEST_MARGIN


class PairTest:
    """A pair test as a state machine: ask for a round, record what its pairs measured, until a round is empty.

    Args:
        nodes: those that take part, in any order.
        seed: of the pairs; the same seed gives the same pairs.
        switches: a node list (`n[1-4]`) for each switch, as far as it is known; one that is malformed is left out, and
            the outcome says so.
        baseline: the fleet's, `{"value": bytes/s, "n"}`.
        policy: how to judge.
        busy: nodes that something else uses; that they are slow says nothing of them.
    """

    def __init__(
        self,
        nodes: Iterable[str],
        seed: str,
        *,
        switches: Optional[dict[str, str]] = None,
        baseline: Optional[dict[str, Any]] = None,
        policy: Optional[PairPolicy] = None,
        busy: Iterable[str] = (),
    ) -> None:
        self.nodes = sorted(nodes)
        self.policy = policy or PairPolicy()
        self.baseline = baseline
        self.busy = frozenset(busy)
        members, self.malformed_switches = members_of(switches or {})
        leaves = leaf_of(members)
        self.switch_of = {node: leaves[node] for node in self.nodes if node in leaves}
        self.measured: list[Measurement] = []
        self.out: dict[str, Out] = {}
        self._random = Random(seed)
        self._ring = shuffled(self.nodes, self._random)
        self._round = 0
        self._of_node: dict[str, list[Measurement]] = defaultdict(list)

    def next_round(self) -> list[Pair]:
        """Return the pairs of the next round, each node in one at most; empty when the test is over."""
        self._round += 1
        present = [node for node in self._ring if node not in self.out]
        if len(present) < 2:
            return []
        # Among three, each must meet both others: with two rounds all pairs of a slow one would be all there are.
        rounds = max(self.policy.rounds, 3) if len(self.nodes) == 3 else self.policy.rounds
        if self._round <= rounds:
            return self._first_pairs(present)
        return self._retests() if self._round <= rounds + self.policy.retests else []

    def record(
        self,
        a: str,
        b: str,
        bytes_per_s: Optional[float],
        reason: str = "",
        out: Optional[dict[str, Out]] = None,
        late: Iterable[str] = (),
    ) -> None:
        """Take what a pair of the round measured.

        Args:
            a, b: the pair.
            bytes_per_s: of the slower direction; None: it could not be measured.
            reason: why it could not.
            out: which of the two take part no longer.
            late: which of the two are there, but did not answer in time: such a meeting says nothing of either.
        """
        self.out = {**(out or {}), **self.out}
        measurement = Measurement(self._round, (a, b), bytes_per_s, reason, tuple(late))
        self.measured.append(measurement)
        for node in (a, b):
            self._of_node[node].append(measurement)

    def of_node(self, node: str) -> list[Measurement]:
        """Return the meetings of a node, in their order."""
        return self._of_node[node]

    def score(self, node: str, without: str = "") -> Optional[float]:
        """Return a node's best result in bytes per second, leaving out those with one partner; None when it has none."""
        rates = [
            one.bytes_per_s
            for one in self._of_node[node]
            if one.bytes_per_s is not None and not (without and one.partner(node) == without)
        ]
        return max(rates, default=None)

    def in_doubt(self, node: str) -> bool:
        """Return whether it may be other work that made a node slow: on it, or on all whom it has measured with."""
        partners = {one.partner(node) for one in self._of_node[node] if one.bytes_per_s is not None}
        return node in self.busy or (bool(partners) and partners <= self.busy)

    def reference(self) -> Optional[dict[str, Any]]:
        """Return what scores are held against, `{"kind", "value", "n"}`; None when nothing was measured."""
        scores = [score for score in map(self.score, self.nodes) if score is not None]
        base = self.baseline["value"] if self.baseline else None
        if not scores:
            return None
        usual = quantile(scores, _PERCENTILE)
        if self.baseline is not None and base is not None and base >= usual:
            return {"kind": "fleet", "value": base, "n": self.baseline.get("n")}
        return {"kind": "peer", "value": usual, "n": len(scores)}

    def slow_pairs(self, reference: float) -> dict[Pair, list[Measurement]]:
        """Return the pairs that were slow or broken whenever they met, though both nodes are well with others."""
        of_pair: dict[frozenset[str], list[Measurement]] = defaultdict(list)
        for one in self.measured:
            if not one.late:
                of_pair[frozenset(one.nodes)].append(one)
        slow = {}
        for meetings in of_pair.values():
            if any((one.bytes_per_s or 0.0) >= self.policy.ratio * reference for one in meetings):
                continue
            a, b = meetings[0].nodes
            if {a, b} & {*self.out, *self.busy}:
                continue
            least = min(self.score(a, without=b) or 0.0, self.score(b, without=a) or 0.0)
            if least >= self.policy.well_ratio * reference:
                slow[(a, b)] = meetings
        return slow

    def _first_pairs(self, present: list[str]) -> list[Pair]:
        met = {frozenset(one.nodes) for one in self.measured}
        groups = self._groups(present)
        if len(groups) < 2:
            return without_repeats(ring_pairs(present, self._round - 1), met)
        if self._round == 1:
            return pairs_within(groups, self._random)
        unmet = [node for node in present if not self._of_node[node]]
        return without_repeats(pairs_across(groups, self._random, keep=unmet), met)

    def _groups(self, present: list[str]) -> list[list[str]]:
        groups: dict[str, list[str]] = defaultdict(list)
        for node in present:
            groups[self.switch_of.get(node, "")].append(node)
        return list(groups.values())

    def _retests(self) -> list[Pair]:
        reference = self.reference()
        if reference is None:
            return []
        enough = self.policy.well_ratio * reference["value"]
        present = [node for node in self.nodes if node not in self.out]
        suspects = [node for node in present if (self.score(node) or 0.0) < enough]
        good = [node for node in present if (self.score(node) or 0.0) >= enough]
        met = {frozenset(one.nodes) for one in self.measured}
        pairs = partners_for(suspects, good, met, self._random)
        busy = {node for pair in pairs for node in pair}
        for pair in self.slow_pairs(reference["value"]):
            if not busy & set(pair):
                pairs.append(pair)
                busy |= set(pair)
        return pairs
