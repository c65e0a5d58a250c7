"""Who is slow: from what ranks do with their time. Pure: events carry their time.

In a synchronous training everybody waits for the slowest, so that the slow rank is the one that waits least: less than its
peers, which do the same work, in round after round. What is too short, too small, or too common blames nobody.
"""

from __future__ import annotations

from array import array
from collections import deque
from typing import Deque, Iterable, Mapping, NamedTuple, Optional, Sequence, Union

from cordee.core.stats import MAD_TO_SIGMA, Outlier, median, outliers_among_peers
from cordee.systems.explain.node.slow.causes import SlowCause, cause_of, common_cause
from cordee.systems.explain.node.slow.rounds import (
    DATA,
    DELAYED,
    NAN,
    STOPPED,
    THROTTLED,
    RankPeers,
    RankRound,
    RoundBeingHeard,
)
from cordee.wire.messages import RankDigest

ROUND_S = 10.0
# Steps may be long: a round is as long as two of them, and one without a step says nothing.
_LEAST_STEPS, _LONGEST_ROUND_S = 2, 300.0
_SPIKE_SHARE, _SPIKE_Z = 0.1, 6.0
_CHRONIC_S = 300.0
_LEAST_PEERS = 4
# From differences of neighbours in time to the deviation of each.
_PAIR = 2**0.5


class _Span(NamedTuple):
    """Over how many rounds is judged: `apart` is the least share of time, `noise` the least deviation that is assumed."""

    rounds: int
    apart: float
    noise: float
    z: float = 5.0


_LONG_EVERY = 3
# Who waits less by less than is certain is slow all the same where one of these says so by itself.
# Its waiting must differ by so many deviations then: by few where peers have hardly any of it, by more where all have some.
_BACKING = {STOPPED: 1.0, THROTTLED: 1.0, DELAYED: 2.5, DATA: 2.5}
# What the kernel counts is no chance at all: it need wait by half as much less.
_BY_THE_KERNEL = (STOPPED, THROTTLED)
_SHORT, _LONG = _Span(4, 0.05, 0.01), _Span(30, 0.02, 0.004)
# Equal ranks differ for ever by about a hundredth of their time: by their place in a ring, their core, what else rank 0 does. How much
# that is shows in the spread of many peers; that of few may be small by luck, so that more is assumed: a tenth, over their number.
_LASTING = 0.1


class SlowRanks(NamedTuple):
    """Ranks, or all ranks of a node, for which others wait.

    Attributes:
        ranks: all of one node; `whole_node`: they are all that it has.
        since: monotonic seconds.
        share, peers_share: the share of their time that they wait for others, and that of their peers.
        slower: by how much more time their own work takes than that of their peers; 0.2: by 20 %.
        cause: why.
        chronic: whether it has lasted for long, or was so in an attempt before.
    """

    node: str
    ranks: tuple[int, ...]
    whole_node: bool
    since: float
    share: float
    peers_share: float
    slower: float
    cause: SlowCause
    chronic: bool


class SlowOver(NamedTuple):
    """Ranks of a node are as fast as their peers again, after so many seconds."""

    node: str
    ranks: tuple[int, ...]
    lasted_s: float


class SlowRank(NamedTuple):
    """One rank that is slow now."""

    rank: int
    node: str
    since: float
    share: float
    peers_share: float
    slower: float
    cause: SlowCause


class _Reported:
    def __init__(self, since: float, chronic: bool, span: _Span) -> None:
        self.since, self.chronic, self.span = since, chronic, span
        self.stood_out = 0.0
        self.now: Optional[SlowRank] = None


class _Heard(NamedTuple):
    """A round, by how much each rank waits less than its peers, with and without the time of saves, and how much that varies by chance."""

    round: RankRound
    less: array[float]
    less_but_saves: array[float]
    noise: float


class SlowDetector:
    """Watches one attempt after the other.

    Attributes:
        spikes: rounds in which a rank was slow all of a sudden, without being told as slow, by rank.
    """

    def __init__(self) -> None:
        self._slow_before: set[str] = set()
        self.begin({}, {}, 0.0)

    def begin(self, nodes: Mapping[int, str], group_of: Mapping[int, object], now: float) -> None:
        """An attempt begins.

        Args:
            nodes: the node of each rank; ranks count from 0.
            group_of: who is whose peer, see `cordee.core.stats.peers_of`; without a group all are.
            now: monotonic seconds.
        """
        self._nodes, self._world = dict(nodes), max(nodes, default=-1) + 1
        self._peers = RankPeers(self._world, group_of)
        enough = (len(group) for group in self._peers.groups if len(group) >= _LEAST_PEERS)
        self._lasting = _LASTING / min(enough, default=_LEAST_PEERS)
        self._group_of = group_of
        self._hearing = RoundBeingHeard(self._world, now)
        self._rounds: Deque[_Heard] = deque(maxlen=_LONG.rounds)
        self._steps_seen = False
        self._closed = 0
        self._told: dict[int, _Reported] = {}
        self._held_back: set[str] = set()
        self.spikes: dict[int, int] = {}

    def told(self, digests: Iterable[RankDigest], now: float) -> None:
        """A node tells what its ranks did."""
        self._hearing.take(digests)

    def look(self, now: float) -> list[Union[SlowRanks, SlowOver]]:
        """Return who has become slow, has been so for long, and is so no more; once each."""
        lasted_s = now - self._hearing.began
        if lasted_s < ROUND_S or not self._world:
            return []
        if not (self._hearing.heard or self._rounds):
            self._hearing.began = now
            return []
        steps = self._hearing.steps
        self._steps_seen = self._steps_seen or steps > 0
        if self._steps_seen and steps < _LEAST_STEPS and lasted_s < _LONGEST_ROUND_S:
            return []
        closed, self._hearing = self._hearing.close(now), RoundBeingHeard(self._world, now)
        # Of a round without a step nothing is said: a first compilation, a validation, a save.
        if self._steps_seen and not steps >= 1:
            return []
        self._rounds.append(self._compared(closed))
        self._closed += 1
        over_long = self._stand_out(_LONG) if self._closed % _LONG_EVERY == 0 else {}
        slow = {**over_long, **self._stand_out(_SHORT)}
        self._count_spikes(slow)
        return [*self._over(slow, now), *self._new(slow, now), *self._chronic()]

    def standing(self) -> list[SlowRank]:
        """Return who is slow now, the slowest first."""
        known = [told.now for told in self._told.values() if told.now is not None]
        return sorted(known, key=lambda one: (one.share - one.peers_share, one.rank))

    # What a round says

    def _compared(self, closed: RankRound) -> _Heard:
        but_saves = array("d", (wait + save for wait, save in zip(closed.waiting, closed.saving)))
        less = self._peers.below(but_saves)
        noise = NAN
        if self._rounds:
            before = self._rounds[-1].less_but_saves
            steps = [abs(new - old) for new, old in zip(less, before) if new == new and old == old]
            noise = MAD_TO_SIGMA / _PAIR * median(steps) if steps else NAN
        return _Heard(closed, self._peers.below(closed.waiting), less, noise)

    def _stand_out(self, span: _Span) -> dict[int, _Span]:
        """Return who waits less than its peers over so many rounds, and in none of them does not."""
        if len(self._rounds) < span.rounds:
            return {}
        heard = list(self._rounds)[-span.rounds :]
        brief = span is _SHORT
        columns = zip(*(one.less_but_saves if brief else one.less for one in heard))
        less = {rank: _middle(column) for rank, column in enumerate(columns)}
        noises = [one.noise for one in heard if one.noise == one.noise]
        noise = max(span.noise, self._lasting, 1.25 * median(noises) / span.rounds**0.5 if noises else 0.0)
        found = self._outliers(less, span.z, noise, span.apart)
        slow = {rank: span for rank in found if self._holds(rank, heard, span)}
        if brief:
            rounds = [one.round for one in heard]
            for what, z in _BACKING.items():
                backed = self._outliers(less, z, noise, span.apart / 2 if what in _BY_THE_KERNEL else span.apart)
                slow.update({rank: span for rank in backed if rank not in slow and self._is_backed(rank, what, rounds)})
        return slow

    def _outliers(self, values: Mapping[int, float], z: float, noise: float, apart: float) -> dict[int, Outlier]:
        return outliers_among_peers(
            values, self._group_of, least=_LEAST_PEERS, z=z, ratio=0.0, side="high", noise=noise, apart=apart
        )

    def _is_backed(self, rank: int, what: str, rounds: Sequence[RankRound]) -> bool:
        """Return whether something that is measured apart from waiting takes a rank's time, in every round and beyond all chance."""
        own = [one.of(what)[rank] - self._peers.median(one.of(what), rank) for one in rounds]
        if not all(beyond >= _SHORT.apart / 2 for beyond in own):
            return False
        shares = {peer: _middle([one.of(what)[peer] for one in rounds]) for peer in self._peers.of(rank)}
        return rank in outliers_among_peers(
            shares, {}, least=_LEAST_PEERS, z=_SHORT.z, ratio=0.0, side="high", noise=_SHORT.noise, apart=_SHORT.apart
        )

    def _holds(self, rank: int, heard: Sequence[_Heard], span: _Span) -> bool:
        """Return whether it is more than a burst: it is so in every round, or over long in the earlier, the later and the last ones."""
        if span is _SHORT:
            return all(one.less_but_saves[rank] >= span.apart / 2 for one in heard)
        third = span.rounds // 3
        parts = (heard[:third], heard[third:-third], heard[-third:], heard[-_SHORT.rounds :])
        return all(_middle([one.less[rank] for one in part]) >= span.apart / 2 for part in parts)

    def _count_spikes(self, slow: Mapping[int, _Span]) -> None:
        last = self._rounds[-1]
        least = max(_SPIKE_SHARE, _SPIKE_Z * last.noise) if last.noise == last.noise else _SPIKE_SHARE
        for rank, less in enumerate(last.less_but_saves):
            if less >= least and rank not in slow and rank not in self._told:
                self.spikes[rank] = self.spikes.get(rank, 0) + 1

    # What is told

    def _new(self, slow: Mapping[int, _Span], now: float) -> list[Union[SlowRanks, SlowOver]]:
        by_node: dict[str, list[int]] = {}
        for rank in slow:
            told = self._told.get(rank)
            if told is not None:
                told.now, told.stood_out = self._about(rank, told), now
            else:
                by_node.setdefault(self._nodes.get(rank, ""), []).append(rank)
        found: list[Union[SlowRanks, SlowOver]] = []
        held_back, self._held_back = self._held_back, set()
        for node, ranks in by_node.items():
            others = [rank for rank in self._heard_on(node) if rank not in slow]
            if others and node not in held_back and self._may_follow(others):
                self._held_back.add(node)
                continue
            whole = not others and len(self._heard_on(node)) > 1 and len(set(self._nodes.values())) > 1
            known = sorted(rank for rank in slow if self._nodes.get(rank) == node) if whole else ranks
            for rank in ranks:
                told = _Reported(self._since(rank, slow[rank]), node in self._slow_before, slow[rank])
                self._told[rank] = told
                told.now, told.stood_out = self._about(rank, told), now
            self._slow_before.add(node)
            for together in [known] if whole else [[rank] for rank in ranks]:
                found.append(self._of(node, together, whole, any(self._told[rank].chronic for rank in together)))
        return found

    def _chronic(self) -> list[SlowRanks]:
        """Return who was told before and has been slow for long since."""
        found = []
        for rank, told in self._told.items():
            if told.now is not None and not told.chronic and told.stood_out - told.since >= _CHRONIC_S:
                told.chronic = True
                found.append(rank)
        by_node: dict[str, list[int]] = {}
        for rank in found:
            by_node.setdefault(self._nodes.get(rank, ""), []).append(rank)
        several = len(set(self._nodes.values())) > 1
        told_again = []
        for node, ranks in by_node.items():
            if several and len(ranks) > 1 and set(ranks) == set(self._heard_on(node)):
                told_again.append(self._of(node, sorted(ranks), True, True))
            else:
                told_again += [self._of(node, [rank], False, True) for rank in ranks]
        return told_again

    def _over(self, slow: Mapping[int, _Span], now: float) -> list[SlowOver]:
        ended: dict[tuple[str, float], list[int]] = {}
        for rank, told in list(self._told.items()):
            if rank in slow:
                continue
            recent = [one.less[rank] for one in list(self._rounds)[-_SHORT.rounds :]]
            middle = _middle(recent)
            fast = len(recent) == _SHORT.rounds and middle < told.span.apart / 2
            # Heard, and for long not slow enough to be told: whatever is left is no more than what equal ranks differ by.
            if not fast and not (middle == middle and now - told.stood_out >= _CHRONIC_S):
                continue
            del self._told[rank]
            lasted_s = max(0.0, self._rounds[-_SHORT.rounds].round.ended - told.since)
            ended.setdefault((self._nodes.get(rank, ""), lasted_s), []).append(rank)
        return [SlowOver(node, tuple(sorted(ranks)), lasted_s) for (node, lasted_s), ranks in ended.items()]

    # What is known of a rank

    def _heard_on(self, node: str) -> list[int]:
        last = self._rounds[-1].less
        return [rank for rank, on in self._nodes.items() if on == node and last[rank] == last[rank]]

    def _may_follow(self, ranks: Sequence[int]) -> bool:
        """Return whether the other ranks of a node are slow too, by half of what is told: it is then the node, one round later."""
        recent = list(self._rounds)[-_SHORT.rounds :]
        return all(_middle([one.less[rank] for one in recent]) >= _SHORT.apart / 2 for rank in ranks)

    def _since(self, rank: int, span: _Span) -> float:
        """Return when it began: the rounds before the newest in which it was slow, without a break of two."""
        began, missed = self._rounds[-1].round.began, 0
        for one in reversed(self._rounds):
            if one.less[rank] >= span.apart / 2:
                began, missed = one.round.began, 0
            else:
                missed += 1
                if missed > 1:
                    break
        return began

    def _about(self, rank: int, told: _Reported) -> SlowRank:
        rounds = [one.round for one in list(self._rounds)[-told.span.rounds :]]
        own = _middle([one.waiting[rank] for one in rounds])
        peers = _middle([self._peers.median(one.waiting, rank) for one in rounds])
        cause = cause_of(rank, peers - own, rounds, self._peers)
        slower = (1 - own) / max(1e-3, 1 - peers) - 1
        return SlowRank(rank, self._nodes.get(rank, ""), told.since, own, peers, slower, cause)

    def _of(self, node: str, ranks: Sequence[int], whole: bool, chronic: bool) -> SlowRanks:
        about = [one for rank in ranks for one in [self._told[rank].now] if one is not None]
        share, peers_share, slower = (
            median(getattr(one, what) for one in about) for what in ("share", "peers_share", "slower")
        )
        since, cause = min(one.since for one in about), common_cause([one.cause for one in about])
        return SlowRanks(node, tuple(ranks), whole, since, share, peers_share, slower, cause, chronic)


def _middle(values: Iterable[float]) -> float:
    """Return the median, NaN where more than a quarter of the values is missing."""
    row = list(values)
    known = sorted(value for value in row if value == value)
    if len(known) < 0.75 * len(row) or not known:
        return NAN
    at = len(known) // 2
    return known[at] if len(known) % 2 else (known[at - 1] + known[at]) / 2
