"""Who broke what: from the digest of all rings to verdicts. A cause is certain or unknown.

Where a call waits, ranks have called the same, or something else, or nothing yet. A rank that has not called and waits elsewhere
is a victim of that; one that waits nowhere is the cause. What would have to be guessed is left to `suspects`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from cordee.systems.explain.flight.habits import deviates, same_order
from cordee.systems.explain.flight.rings import ALL_TO_ALL, RingGroup, Rings, RingTransfer

UNKNOWN = "unknown"
_CONTEXT = 3
_MOST_TRIED = 8
_MOST_IN_ROUND = 16
_ANONYMOUS = ("", "undefined")

Look = Callable[[int], list[dict[str, Any]]]


class FlightVerdict(NamedTuple):
    """One cause.

    Attributes:
        kind: `missing-rank`, `cpu-stall`, `gpu-stall`, `wrong-collective`, `size`, `dtype`, `order`, `coalesced`,
            `all-to-all`, `p2p` or `unknown`.
        ranks: who is to blame for certain.
        suspects: among whom the cause is, where it is not certain.
        group, sequence: what hangs; a transfer has no sequence number that ranks share.
        arrived: a rank that called it as it should be.
        odd: by rank, what it called instead (a number of `Rings.calls`).
        why: in words, what is particular.
    """

    kind: str
    ranks: tuple[int, ...]
    group: RingGroup
    sequence: int | None
    arrived: int | None = None
    suspects: tuple[int, ...] = ()
    odd: Mapping[int, int] = MappingProxyType({})
    why: str = ""


class Stuck(NamedTuple):
    """The first call of a group that has not ended.

    Attributes:
        arrived: who has called it, late: who has not, unseen: of whom nothing can be said.
        since: when the first rank called it, ns by that rank's clock.
    """

    group: RingGroup
    sequence: int
    arrived: list[int]
    late: list[int]
    unseen: list[int]
    since: int


class FlightJudge:
    """Judges a digest.

    Args:
        world: how many ranks there are; 0: not known.
        look: returns a rank's entries, read once more.
    """

    def __init__(self, rings: Rings, world: int, look: Look) -> None:
        self.rings = rings
        self.world = world
        self.look = look
        self.stuck = {group.index: found for group in rings.groups if (found := self._stuck_in(group)) is not None}

    def members(self, group: RingGroup) -> Collection[int]:
        """Return the ranks of a group, those that called it where dumps do not say."""
        if group.members is not None:
            return group.members
        return range(self.world) if group.whole else group.spans

    def verdicts(self) -> list[FlightVerdict]:
        """Return the causes, the surest first; what is not certain only where nothing else is."""
        certain: list[FlightVerdict] = []
        likely: list[FlightVerdict] = []
        stuck = sorted(self.stuck.values(), key=lambda one: one.since)
        for one in stuck:
            mismatch = self._mismatch(one)
            if mismatch is not None:
                certain.append(mismatch)
            elif one.late:
                certain += self._idle(one)
        blamed = {rank for verdict in certain for rank in (*verdict.ranks, *verdict.suspects)}
        for verdict in self._transfers():
            if verdict.kind == UNKNOWN:
                likely.append(verdict)
            elif not blamed & set(verdict.ranks):
                certain.append(verdict)
        if not certain:
            certain = self._cycles(stuck)
        if not certain:
            certain, more = self._complete(stuck)
            likely += more
        if not certain and likely:
            suspects = sorted({rank for one in likely for rank in one.suspects})
            certain = [likely[0]._replace(suspects=tuple(suspects))]
        return _merged(certain)

    def _stuck_in(self, group: RingGroup) -> Stuck | None:
        waiting = [(span.open, span.time) for span in group.spans.values() if span.open is not None]
        if not waiting:
            waiting = self._failed_in(group)
        if not waiting:
            return None
        sequence = min(open_ for open_, _ in waiting)
        arrived, late, unseen = [], [], []
        for rank in self.members(group):
            ring, span = self.rings.ranks.get(rank), group.spans.get(rank)
            if ring is None or (span is None and ring.cut):
                unseen.append(rank)
            elif span is None or span.high < sequence:
                late.append(rank)
            else:
                arrived.append(rank)
        return Stuck(group, sequence, arrived, late, unseen, min(time for open_, time in waiting if open_ == sequence))

    def _failed_in(self, group: RingGroup) -> list[tuple[int, int]]:
        """Return the last call of a Gloo group, and when it was made, if ranks called different things: it failed, and is no more."""
        last = max((span.high for span in group.spans.values()), default=-1)
        if last not in group.odd or not all(self.rings.ranks[rank].gloo for rank in group.spans):
            return []
        return [(last, span.last[1]) for span in group.spans.values() if span.high == last]

    def _idle(self, stuck: Stuck) -> list[FlightVerdict]:
        """Return the verdict about late ranks that wait in nothing."""
        idle = tuple(rank for rank in stuck.late if not self.rings.ranks[rank].waits)
        if not idle:
            return []
        group, sequence, arrived = stuck.group, stuck.sequence, stuck.arrived[0]
        if any(ring.transfers for ring in self.rings.ranks.values()):
            why = "this program sends and receives, which Gloo does not record: they may wait in that"
            return [FlightVerdict(UNKNOWN, (), group, sequence, arrived, idle, why=why)]
        if any(self._went_past(rank, arrived, group, sequence) for rank in idle):
            return [
                FlightVerdict(
                    "missing-rank", idle, group, sequence, arrived, why="it went past this call to later ones"
                )
            ]
        return [FlightVerdict("cpu-stall", idle, group, sequence, arrived)]

    def _went_past(self, rank: int, other: int, group: RingGroup, sequence: int) -> bool:
        """Return whether a rank made calls that another one, which waits here, made only after this call."""
        seen = self.look(rank)
        return bool(seen) and same_order(seen[-1], self.look(other), group, sequence) is False

    def _mismatch(self, stuck: Stuck) -> FlightVerdict | None:
        """Return the verdict about a call in which ranks do not agree, None where they do."""
        group = stuck.group
        undecided = None
        for sequence in sorted(one for one in group.odd if one <= stuck.sequence):
            sides = group.sides(sequence)
            if len(sides) < 2:
                continue
            right = self._right_side(group, sequence, sides)
            odd = {rank: call for call, ranks in sides.items() if call != right for rank in ranks}
            if right is None:
                kind = self._kind(*list(sides)[:2])
                everybody = tuple(sorted(odd))
                why = "neither side is in the majority"
                undecided = undecided or FlightVerdict(kind, (), group, sequence, None, everybody, odd, why)
                continue
            kind = self._kind(right, next(iter(odd.values())))
            if all(self._swapped(group, sequence, rank, sides[right][0]) for rank in odd):
                kind = "order"
            return FlightVerdict(kind, tuple(sorted(odd)), group, sequence, sides[right][0], (), odd)
        return undecided

    def _right_side(self, group: RingGroup, sequence: int, sides: dict[int, list[int]]) -> int | None:
        """Return the call that was meant: of most ranks, of groups of the same kind, or as it was before."""
        most = max(sides, key=lambda call: len(sides[call]))
        if 2 * len(sides[most]) > len(self.members(group)):
            return most
        meant: set[int] = set()
        if group.desc not in _ANONYMOUS:
            for other in self.rings.groups:
                if other is not group and other.desc == group.desc and sequence not in other.odd:
                    meant.add(other.calls.get(sequence, -1))
        if len(meant & set(sides)) == 1:
            return (meant & set(sides)).pop()
        before = _followers(group, sequence) & set(sides)
        right = before.pop() if len(before) == 1 else None
        # Where several differ from what they did before, they may have meant to.
        return right if sum(len(ranks) for call, ranks in sides.items() if call != right) == 1 else None

    def _kind(self, right: int, wrong: int) -> str:
        one, other = self.rings.calls[right], self.rings.calls[wrong]
        if "coalesced" in (one.op, other.op) or (one.before < 0) != (other.before < 0):
            return "coalesced"
        if one.op != other.op:
            return "wrong-collective"
        types = (one.input_types, one.output_types) != (other.input_types, other.output_types)
        return "dtype" if types else "size"

    def _swapped(self, group: RingGroup, sequence: int, odd: int, other: int) -> bool:
        def call(rank: int, by: int) -> int | None:
            return group.call_of(rank, sequence + by)

        return None not in (call(odd, 1), call(other, 1)) and (call(odd, 0), call(odd, 1)) == (
            call(other, 1),
            call(other, 0),
        )

    def _transfers(self) -> list[FlightVerdict]:
        """Return the verdicts about sends and receives whose other half is missing, or differs."""
        found = []
        for rank, ring in self.rings.ranks.items():
            what = next((wait for wait in ring.waits if isinstance(wait, RingTransfer)), None)
            if what is None or what.peer < 0:
                continue
            group, peer = self.rings.groups[what.group], self.rings.ranks.get(what.peer)
            if peer is None:
                why = f"rank {rank} waits in a {what.op} for rank {what.peer}, which wrote no dump"
                changed = ring.sizes.get((what.group, what.op, what.peer), what.numel) != what.numel
                suspects = (what.peer, rank) if changed else (what.peer,)
                found.append(FlightVerdict(UNKNOWN, (), group, None, rank, suspects, why=why))
                continue
            half = self._half(rank, what)
            if half is None:
                if not peer.waits:
                    why = f"rank {rank} waits in a {what.op}, and rank {what.peer} waits in no communication"
                    found.append(FlightVerdict("cpu-stall", (what.peer,), group, None, rank, why=why))
            elif rank < what.peer and (half.numel, half.dtype) != (what.numel, what.dtype):
                found.append(self._unequal(rank, what, half))
        return found

    def _half(self, rank: int, what: RingTransfer) -> RingTransfer | None:
        """Return the transfer of the peer that belongs to this one, if it waits in that."""
        op = _other(what.op)
        for wait in self.rings.ranks[what.peer].waits:
            if isinstance(wait, RingTransfer) and (wait.group, wait.op, wait.peer) == (what.group, op, rank):
                return wait
        return None

    def _unequal(self, rank: int, what: RingTransfer, half: RingTransfer) -> FlightVerdict:
        """Return the verdict about a send and a receive of different size or type: who differs from its last one."""
        changed = []
        for who, one in ((rank, what), (what.peer, half)):
            before = self.rings.ranks[who].sizes.get((one.group, one.op, one.peer))
            if before is not None and before != one.numel:
                changed.append(who)
        group = self.rings.groups[what.group]
        why = f"rank {rank} waits in a {what.op} of {_amount(what)}, rank {what.peer} in a {half.op} of {_amount(half)}"
        if len(changed) == 1:
            other = what.peer if changed[0] == rank else rank
            return FlightVerdict("p2p", (changed[0],), group, None, other, why=why)
        return FlightVerdict("p2p", (), group, None, rank, tuple(sorted((rank, what.peer))), why=why)

    def _head(self, rank: int) -> int | RingTransfer | None:
        """Return what a rank waits in first: what it called later waits for that."""
        return next(iter(self.rings.ranks[rank].waits), None)

    def _away(self, stuck: Stuck) -> list[int]:
        """Return the members that have not called, or wait in something that they called before."""
        return stuck.late + [rank for rank in stuck.arrived if self._head(rank) not in (None, stuck.group.index)]

    def _cycles(self, stuck: list[Stuck]) -> list[FlightVerdict]:
        """Return the verdict where ranks wait for each other: in two groups, or in transfers."""
        away = {one.group.index: self._away(one) for one in stuck}
        for one in stuck:
            elsewhere = {head for rank in away[one.group.index] if isinstance(head := self._head(rank), int)}
            for index in sorted(elsewhere - {one.group.index}):
                other = self.stuck[index]
                first = [rank for rank in away[one.group.index] if self._head(rank) == index]
                second = [rank for rank in away[index] if self._head(rank) == one.group.index]
                if first and second:
                    return [self._order(one, other, first, second)]
        undecided: list[FlightVerdict] = []
        for rank in self.rings.ranks:
            what = self._head(rank)
            if not isinstance(what, RingTransfer) or what.peer not in self.rings.ranks:
                continue
            head, half = self._head(what.peer), self._half(rank, what)
            if half is None:
                if len(undecided) < _MOST_TRIED and rank in self._waited_for(what.peer, away):
                    verdict = self._unanswered(rank, what)
                    if verdict.ranks:
                        return [verdict]
                    undecided.append(verdict)
            elif (
                isinstance(head, RingTransfer)
                and (head.op, head.peer) == (what.op, rank)
                and self._half(what.peer, head)
            ):
                verdict = self._crossed(rank, what)
                if verdict.ranks:
                    return [verdict]
                undecided.append(verdict)
        return undecided[:1] or self._round(away)

    def _round(self, away: dict[int, list[int]]) -> list[FlightVerdict]:
        """Return the verdict about ranks that wait for each other in a longer round: whose last steps went another way."""
        start = next((rank for rank in self.rings.ranks if rank in self._waited_for(rank, away)), None)
        if start is None:
            return []
        ranks = [rank for rank in self._waited_for(start, away) if start in self._waited_for(rank, away)]
        head = self._head(start)
        odd = ranks
        if len(ranks) <= _MOST_IN_ROUND:
            common = next((one for one in self.rings.groups if all(rank in one.spans for rank in ranks)), None)
            ways = {rank: deviates(self.look(rank), common) if common else None for rank in ranks}
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
        group, stuck = self.rings.groups[index], self.stuck.get(index)
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
                then = [head.peer] if head.peer in self.rings.ranks else []
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
            group.desc == stuck.group.desc
            and group.desc not in _ANONYMOUS
            and rank in group.spans
            and group.spans[rank].high >= stuck.sequence
            and group is not stuck.group
            for group in self.rings.groups
        )

    def _unanswered(self, rank: int, what: RingTransfer) -> FlightVerdict:
        """Return the verdict about a transfer whose peer has none for it, and waits for this rank elsewhere."""
        group = self.rings.groups[what.group]
        why = f"rank {rank} waits in a {what.op}, and rank {what.peer} has no {_other(what.op)} for it"
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
        group = self.rings.groups[what.group]
        why = f"rank {rank} and rank {what.peer} wait in a {what.op} for the other's {_other(what.op)}"
        mine, theirs = self._changed(rank, what.peer)
        pair = tuple(sorted((rank, what.peer)))
        if mine is None or theirs is None:
            return FlightVerdict("p2p", (), group, None, rank, pair, why=why)
        if mine == theirs:
            return FlightVerdict("p2p", pair, group, None, rank, why=why)
        odd, other = (rank, what.peer) if mine else (what.peer, rank)
        return FlightVerdict("p2p", (odd,), group, None, other, why=f"{why}; it went another way in the steps before")

    def _changed(self, rank: int, peer: int) -> tuple[bool | None, bool | None]:
        """Return whether the last steps of two ranks went unlike those before, None where it cannot be said."""
        for group in self.rings.groups:
            if rank in group.spans and peer in group.spans:
                return deviates(self.look(rank), group), deviates(self.look(peer), group)
        return None, None

    def _complete(self, stuck: list[Stuck]) -> tuple[list[FlightVerdict], list[FlightVerdict]]:
        """Return verdicts, certain and not, about calls that nobody is seen to miss."""
        certain, likely = [], []
        for one in stuck:
            group, sequence = one.group, one.sequence
            if one.late or any(self.rings.ranks[rank].waits[:1] != [group.index] for rank in one.arrived):
                continue  # whoever is late, or came here from something that waits, waits for others
            call = self.rings.calls[group.calls[sequence]]
            if call.op in ALL_TO_ALL and (verdict := self._exchange(one)) is not None:
                certain.append(verdict)
                continue
            started = [rank for rank in one.arrived if group.spans[rank].started]
            held = tuple(rank for rank in one.arrived if not group.spans[rank].started)
            if held and 2 * len(held) <= len(one.arrived):
                certain.append(FlightVerdict("gpu-stall", held, group, sequence, started[0]))
            elif one.unseen:
                why = "all whose dumps are there have called it alike"
                likely.append(FlightVerdict(UNKNOWN, (), group, sequence, one.arrived[0], tuple(one.unseen), why=why))
            else:
                why = "all ranks have called it alike, and it does not end: look at links and GPUs"
                likely.append(FlightVerdict(UNKNOWN, (), group, sequence, one.arrived[0], why=why))
        if not certain and not likely and stuck:
            one = stuck[0]
            suspects = tuple(sorted({*one.unseen, *one.late}))
            why = "who has not called it waits elsewhere, for ranks of which there is no dump"
            likely.append(FlightVerdict(UNKNOWN, (), one.group, one.sequence, one.arrived[0], suspects, why=why))
        return certain, likely

    def _exchange(self, stuck: Stuck) -> FlightVerdict | None:
        """Return the verdict about an all-to-all whose sent and expected amounts do not add up, or that one has changed."""
        now: dict[int, tuple[int, int]] = {}
        before: set[tuple[int, int]] = set()
        for rank in stuck.arrived:
            for entry in self.look(rank):
                if entry["process_group"][0] != stuck.group.name or entry.get("is_p2p"):
                    continue
                if str(entry["profiling_name"]).rpartition(":")[2] in ALL_TO_ALL:
                    amount = (_total(entry["input_sizes"]), _total(entry["output_sizes"]))
                    if entry["collective_seq_id"] == stuck.sequence:
                        now[rank] = amount
                    elif entry["collective_seq_id"] < stuck.sequence:
                        before.add(amount)
        usual, count = Counter(now.values()).most_common(1)[0]
        odd = tuple(sorted(rank for rank, amount in now.items() if amount != usual))
        even = usual[0] == usual[1] and 2 * count > len(now)
        adds_up = sum(sent for sent, _ in now.values()) == sum(got for _, got in now.values())
        if not odd or (adds_up and not stuck.unseen) or (stuck.unseen and not (even and before == {usual})):
            return None
        why = "what ranks send and what they expect does not add up"
        if even:
            right = next(rank for rank, amount in now.items() if amount == usual)
            return FlightVerdict("all-to-all", odd, stuck.group, stuck.sequence, right, why=why)
        return FlightVerdict("all-to-all", (), stuck.group, stuck.sequence, None, tuple(sorted(now)), why=why)


def _followers(group: RingGroup, sequence: int) -> set[int]:
    """Return what followed, earlier in the ring, the calls that this sequence number follows."""
    context = [group.calls.get(sequence - back) for back in range(1, _CONTEXT + 1)]
    if None in context:
        return set()
    return {
        group.calls[at]
        for at in group.calls
        if at < sequence and [group.calls.get(at - back) for back in range(1, _CONTEXT + 1)] == context
    }


def _merged(verdicts: list[FlightVerdict]) -> list[FlightVerdict]:
    """Return one verdict per cause: the first about the same ranks, and of what is called wrongly before what is not called."""
    found: list[FlightVerdict] = []
    for verdict in sorted(verdicts, key=lambda one: one.kind in ("cpu-stall", "missing-rank", UNKNOWN)):
        said = {rank for one in found for rank in (*one.ranks, *one.suspects)}
        if not found or not set(verdict.ranks or verdict.suspects) <= said:
            found.append(verdict)
    return found


def _other(op: str) -> str:
    return "recv" if op == "send" else "send"


def _amount(what: RingTransfer) -> str:
    return f"{sum(what.numel)} {'/'.join(what.dtype)}"


def _total(sizes: list[list[int]]) -> int:
    total = 0
    for size in sizes:
        numel = 1
        for length in size:
            numel *= length
        total += numel
    return total
