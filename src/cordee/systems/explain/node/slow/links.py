"""Which connection between two nodes is slow: data waits for it, round after round, and for no other. Pure."""

from __future__ import annotations

from collections import deque
from typing import Deque, Iterable, Mapping, NamedTuple

from cordee.core.stats import median, outliers
from cordee.systems.explain.node.slow.detector import ROUND_S
from cordee.wire.messages import SlowLink

_ROUNDS, _LEAST_LINKS = 6, 4
_LEAST_BYTES = 256 << 10
# What a healthy connection holds now and then.
_NOISE_BYTES = 64 << 10


class SlowConnection(NamedTuple):
    """Data waits on a node for a peer.

    Attributes:
        address: of the peer.
        queued_bytes, usual_bytes: what waits, and what does on other connections: medians of the largest in each round.
        retransmits: segments sent again in all rounds that were looked at.
    """

    node: str
    address: str
    queued_bytes: float
    usual_bytes: float
    retransmits: int
    since: float


Key = tuple[str, str]


class LinkDetector:
    """Watches one attempt after the other."""

    def __init__(self) -> None:
        self.begin((), 0.0)

    def begin(self, nodes: Iterable[str], now: float) -> None:
        """An attempt begins on these nodes; one that tells of no connection has none for which data waits."""
        self._nodes = sorted(set(nodes))
        self._began = now
        self._hearing: dict[Key, tuple[int, int]] = {}
        self._rounds: Deque[Mapping[Key, tuple[int, int]]] = deque(maxlen=_ROUNDS)
        self._told: set[Key] = set()

    def told(self, node: str, links: Iterable[SlowLink]) -> None:
        """A node tells where data waited."""
        for link in links:
            queued, again = self._hearing.get((node, link.address), (0, 0))
            self._hearing[node, link.address] = max(queued, link.queued_bytes), again + link.retransmits

    def look(self, now: float, excused: Iterable[str]) -> list[SlowConnection]:
        """Return the connections that have become slow, once each.

        Args:
            excused: nodes and addresses with slow ranks: who reads late keeps others' data waiting, and is no slow connection.
        """
        if now - self._began < ROUND_S:
            return []
        self._rounds.append(self._hearing)
        self._hearing, self._began = {}, now
        known = {key for one in self._rounds for key in one}
        telling = {node for node, _ in known}
        known |= {(node, "") for node in self._nodes if node not in telling}
        if len(self._rounds) < _ROUNDS or len(known) < _LEAST_LINKS:
            return []
        queued = {key: [one.get(key, (0, 0))[0] for one in self._rounds] for key in known}
        waits = {key: float(median(row)) for key, row in queued.items()}
        found = outliers(waits, side="high", ratio=1.0, least=_LEAST_LINKS, noise=_NOISE_BYTES, apart=_LEAST_BYTES)
        innocent = set(excused)
        slow = {
            key
            for key in found
            if min(queued[key]) >= _LEAST_BYTES and key[0] not in innocent and key[1] not in innocent
        }
        new, self._told = slow - self._told, self._told & set(found) | slow
        since = now - _ROUNDS * ROUND_S
        return [
            SlowConnection(
                *key, waits[key], found[key].median, sum(one.get(key, (0, 0))[1] for one in self._rounds), since
            )
            for key in sorted(new)
        ]
