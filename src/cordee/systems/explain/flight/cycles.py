"""Ranks that wait for each other: in two groups, in transfers, or in a longer round."""

from __future__ import annotations

from cordee.systems.explain.flight.habits import Look, deviates, unlike_siblings
from cordee.systems.explain.flight.rings import Rings, RingTransfer
from cordee.systems.explain.flight.transfers import matching, other_op
from cordee.systems.explain.flight.verdict import FlightVerdict, Stuck

_MOST_TRIED = 8
_MOST_IN_ROUND = 16


class WaitCycles:
    """Finds them in a digest.

    Args:
        stuck: the calls that do not end, those first that began first.
        look: returns a rank's entries, read once more.
    """

    def __init__(self, rings: Rings, stuck: list[Stuck], look: Look) -> None:
        self._rings, self._in_order, self._look = rings, stuck, look
        self._stuck = {one.group.index: one for one in self._in_order}

    def verdicts(self) -> list[FlightVerdict]:
        """Return the verdict where ranks wait for each other: in two groups, or in transfers."""
        away = {one.group.index: self._away(one) for one in self._in_order}
        for one in self._in_order:
            elsewhere = {head for rank in away[one.group.index] if isinstance(head := self._head(rank), int)}
            for index in sorted(elsewhere - {one.group.index}):
                other = self._stuck[index]
                first = [rank for rank in away[one.group.index] if self._head(rank) == index]
                second = [rank for rank in away[index] if self._head(rank) == one.group.index]
                if first and second:
                    return [self._order(one, other, first, second)]
        undecided: list[FlightVerdict] = []
        for rank in self._rings.ranks:
            what = self._head(rank)
            if not isinstance(what, RingTransfer) or what.peer not in self._rings.ranks:
                continue
            head, half = self._head(what.peer), matching(self._rings, rank, what)
            if half is None:
                if len(undecided) < _MOST_TRIED and rank in self._waited_for(what.peer, away):
                    verdict = self._unanswered(rank, what)
                    if verdict.ranks:
                        return [verdict]
                    undecided.append(verdict)
            elif (
                isinstance(head, RingTransfer)
                and (head.op, head.peer) == (what.op, rank)
                and matching(self._rings, what.peer, head)
            ):
                verdict = self._crossed(rank, what)
                if verdict.ranks:
                    return [verdict]
                undecided.append(verdict)
        return undecided[:1] or self._round(away)

    def _round(self, away: dict[int, list[int]]) -> list[FlightVerdict]:
        """Return the verdict about ranks that wait for each other in a longer round: whose last steps went another way."""
        start = next((rank for rank in self._rings.ranks if rank in self._waited_for(rank, away)), None)
        if start is None:
            return []
        ranks = [rank for rank in self._waited_for(start, away) if start in self._waited_for(rank, away)]
        head = self._head(start)
        odd = ranks
        if len(ranks) <= _MOST_IN_ROUND:
            common = next((one for one in self._rings.groups if all(rank in one.spans for rank in ranks)), None)
            ways = {rank: deviates(self._look(rank), common) if common else None for rank in ranks}
            odd = [rank for rank, way in ways.items() if way is not False]
            head = self._head(odd[0]) if odd else head
            if len(odd) == 1 and ways[odd[0]]:
                why = "its last step went unlike those before, and ranks wait for each other in a round"
                return [self._round_verdict(head, tuple(odd), (), why)]
        return [
            self._round_verdict(head, (), tuple(sorted(odd or ranks)), "these ranks wait for each other in a round")
        ]

    def _round_verdict(
        self, head: int | RingTransfer | None, ranks: tuple[int, ...], suspects: tuple[int, ...], why: str
    ) -> FlightVerdict:
        index = head.group if isinstance(head, RingTransfer) else head
        assert index is not None
        group, stuck = self._rings.groups[index], self._stuck.get(index)
        sequence = None if isinstance(head, RingTransfer) or stuck is None else stuck.sequence
        return FlightVerdict("order", ranks, group, sequence, None, suspects, why=why)

    def _waited_for(self, rank: int, away: dict[int, list[int]]) -> set[int]:
        """Return the ranks for which a rank waits, and those for which they wait, and so on."""
        found: set[int] = set()
        groups: set[int] = set()
        to_see = [rank]
        while to_see:
            head = self._head(to_see.pop())
            then: list[int] = []
            if isinstance(head, RingTransfer):
                then = [head.peer] if head.peer in self._rings.ranks else []
            elif head is not None and head not in groups:
                groups.add(head)
                then = away[head]
            to_see += [one for one in then if one not in found]
            found.update(then)
        return found

    def _order(self, one: Stuck, other: Stuck, first: list[int], second: list[int]) -> FlightVerdict:
        """Return the verdict about ranks that call two groups in different order.

        Args:
            first: ranks that wait in `other` before they come to `one`; `second`: the reverse.
        """
        here, there = set(second), set(first)
        for rank in {*one.arrived, *other.arrived} - here - there:
            head = self._head(rank)
            if head == one.group.index and self._alike(rank, other):
                there.add(rank)
            elif head == other.group.index and self._alike(rank, one):
                here.add(rank)
        if len(here) == len(there):
            why = "half of them call two groups in one order, half in the other"
            everybody = tuple(sorted(here | there))
            return FlightVerdict("order", (), one.group, one.sequence, None, everybody, why=why)
        wrong, missed, waits = (second, other, one) if len(here) < len(there) else (first, one, other)
        why = f"waits in {waits.group.title} instead: this call was left out, or is made in another order"
        arrived = next((rank for rank in missed.arrived if rank not in wrong), None)
        return FlightVerdict("order", tuple(sorted(wrong)), missed.group, missed.sequence, arrived, why=why)

    def _alike(self, rank: int, stuck: Stuck) -> bool:
        """Return whether a rank has called this sequence number in a group of the same kind."""
        return any(
            stuck.group.kindred(group) and rank in group.spans and group.spans[rank].high >= stuck.sequence
            for group in self._rings.groups
        )

    def _unanswered(self, rank: int, what: RingTransfer) -> FlightVerdict:
        """Return the verdict about a transfer whose peer has none for it, and waits for this rank elsewhere."""
        group = self._rings.groups[what.group]
        why = f"rank {rank} waits in a {what.op}, and rank {what.peer} has no {other_op(what.op)} for it"
        mine, theirs = self._changed(rank, what.peer)
        if mine is False and theirs is True:
            return FlightVerdict("p2p", (what.peer,), group, None, rank, why=f"{why}, unlike in the steps before")
        if mine is True and theirs is False:
            return FlightVerdict(
                "p2p", (rank,), group, None, what.peer, why=f"{why}; there was none in the steps before"
            )
        return FlightVerdict("p2p", (), group, None, rank, tuple(sorted((rank, what.peer))), why=why)

    def _crossed(self, rank: int, what: RingTransfer) -> FlightVerdict:
        """Return the verdict about two ranks that both send, or both receive: who left a transfer out, or both."""
        group = self._rings.groups[what.group]
        why = f"rank {rank} and rank {what.peer} wait in a {what.op} for the other's {other_op(what.op)}"
        mine, theirs = self._changed(rank, what.peer)
        pair = tuple(sorted((rank, what.peer)))
        if mine is None or theirs is None:
            return FlightVerdict("p2p", (), group, None, rank, pair, why=why)
        if mine == theirs:
            return FlightVerdict("p2p", pair, group, None, rank, why=why)
        odd, other = (rank, what.peer) if mine else (what.peer, rank)
        return FlightVerdict("p2p", (odd,), group, None, other, why=f"{why}; it went another way in the steps before")

    def _changed(self, rank: int, peer: int) -> tuple[bool | None, bool | None]:
        """Return whether the last steps of two ranks went unlike those before, or of those that do the same work; None: not known."""
        mine, theirs = None, None
        for group in self._rings.groups:
            if rank in group.spans and peer in group.spans:
                mine, theirs = deviates(self._look(rank), group), deviates(self._look(peer), group)
                break
        return self._or_unlike(mine, rank), self._or_unlike(theirs, peer)

    def _or_unlike(self, known: bool | None, rank: int) -> bool | None:
        head = self._head(rank)
        if known is not None or not isinstance(head, RingTransfer):
            return known
        against = self._head(head.peer) if head.peer in self._rings.ranks else None
        if isinstance(against, RingTransfer) and (against.op, against.peer, head.op) == ("send", rank, "send"):
            return None  # which of two sends that cross was meant to be a receive depends on what neither has come to
        return unlike_siblings(rank, head, self._rings, self._look)

    def _head(self, rank: int) -> int | RingTransfer | None:
        """Return what a rank waits in first: what it called later waits for that."""
        return next(iter(self._rings.ranks[rank].waits), None)

    def _away(self, stuck: Stuck) -> list[int]:
        """Return the members that have not called, or wait in something that they called before."""
        return stuck.late + [rank for rank in stuck.arrived if self._head(rank) not in (None, stuck.group.index)]
