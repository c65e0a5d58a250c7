"""Who broke what: from the digest of all rings to verdicts. A cause is certain or unknown.

Where a call waits, ranks have called the same, or something else, or nothing yet. A rank that has not called and waits elsewhere
is a victim of that; one that waits nowhere is the cause. What would have to be guessed is left to `suspects`.
"""

from __future__ import annotations

from collections.abc import Collection

from cordee.systems.explain.flight.cycles import WaitCycles
from cordee.systems.explain.flight.exchange import exchange
from cordee.systems.explain.flight.habits import Look, same_order
from cordee.systems.explain.flight.rings import ALL_TO_ALL, RingGroup, Rings
from cordee.systems.explain.flight.transfers import transfers
from cordee.systems.explain.flight.verdict import UNKNOWN, FlightVerdict, Stuck

_CONTEXT = 3


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
        for verdict in transfers(self.rings, self.look):
            if verdict.kind == UNKNOWN:
                likely.append(verdict)
            elif not blamed & set(verdict.ranks):
                certain.append(verdict)
        if not certain:
            certain = WaitCycles(self.rings, stuck, self.look).verdicts()
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
        for other in self.rings.groups:
            if group.kindred(other) and sequence not in other.odd:
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

    def _complete(self, stuck: list[Stuck]) -> tuple[list[FlightVerdict], list[FlightVerdict]]:
        """Return verdicts, certain and not, about calls that nobody is seen to miss."""
        certain, likely = [], []
        for one in stuck:
            group, sequence = one.group, one.sequence
            if one.late or any(self.rings.ranks[rank].waits[:1] != [group.index] for rank in one.arrived):
                continue  # whoever is late, or came here from something that waits, waits for others
            call = self.rings.calls[group.calls[sequence]]
            if call.op in ALL_TO_ALL and (verdict := exchange(one, self.members(group), self.look)) is not None:
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
