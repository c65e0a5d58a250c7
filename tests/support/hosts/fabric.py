"""A network that is only simulated: what pairs of nodes would measure, with noise, dips, slow nodes and slow links."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from random import Random

from cordee.systems.vetting.node.judge.pair_judgement import judge
from cordee.systems.vetting.node.judge.pairs import PairOutcome, PairTest

HEALTHY_BYTES_PER_S = 25e9


class SimulatedFabric:
    """Says what a pair would measure: the slower node's rate, with noise, sometimes with a dip, and less over a slow link.

    Args:
        slow: by node, the share of the healthy rate that it has left.
        links: by pair, the share that is left between them; 0: they do not reach each other.
        dead: nodes that exchange data with nobody.
        noise: standard deviation of a measurement, as a share of it.
        dip_ratio: how often a measurement meets other traffic, which leaves it 40 to 90 %.
        seed: of all chances.
    """

    def __init__(
        self,
        *,
        slow: Mapping[str, float] | None = None,
        links: Mapping[frozenset[str], float] | None = None,
        dead: Iterable[str] = (),
        noise: float = 0.03,
        dip_ratio: float = 0.05,
        seed: int | str = 0,
    ) -> None:
        self._slow = dict(slow or {})
        self._links = dict(links or {})
        self._dead = set(dead)
        self._noise = noise
        self._dip_ratio = dip_ratio
        self._random = Random(seed)

    def rate(self, a: str, b: str) -> float | None:
        """Return what the pair measures in bytes per second, or None when no data passes."""
        share = min(self._slow.get(a, 1.0), self._slow.get(b, 1.0)) * self._links.get(frozenset((a, b)), 1.0)
        if {a, b} & self._dead or share == 0:
            return None
        rate = HEALTHY_BYTES_PER_S * share * (1 + self._random.gauss(0, self._noise))
        return rate * self._random.uniform(0.4, 0.9) if self._random.random() < self._dip_ratio else rate

    def run(self, test: PairTest) -> PairOutcome:
        """Run all rounds of a pair test on this network."""
        while pairs := test.next_round():
            for a, b in pairs:
                rate = self.rate(a, b)
                test.record(a, b, rate, "" if rate is not None else "connection refused")
        return judge(test)
