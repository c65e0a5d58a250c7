"""Sends and receives whose other half is missing, or differs."""

from __future__ import annotations

from cordee.systems.explain.flight.habits import Look, unlike_siblings
from cordee.systems.explain.flight.rings import Rings, RingTransfer
from cordee.systems.explain.flight.verdict import UNKNOWN, FlightVerdict

UNLIKE = "and came there another way than the ranks that do the same work"


def transfers(rings: Rings, look: Look) -> list[FlightVerdict]:
    """Return the verdicts about sends and receives whose other half is missing, or differs.

    Args:
        look: returns a rank's entries, read once more.
    """
    found = []
    for rank, ring in rings.ranks.items():
        what = next((wait for wait in ring.waits if isinstance(wait, RingTransfer)), None)
        if what is None or what.peer < 0:
            continue
        group, peer = rings.groups[what.group], rings.ranks.get(what.peer)
        if peer is None:
            why = f"rank {rank} waits in a {what.op} for rank {what.peer}, which wrote no dump"
            if unlike_siblings(rank, what, rings, look):
                found.append(FlightVerdict("p2p", (rank,), group, None, why=f"{why}, {UNLIKE}"))
                continue
            changed = ring.sizes.get((what.group, what.op, what.peer), what.numel) != what.numel
            suspects = (what.peer, rank) if changed else (what.peer,)
            found.append(FlightVerdict(UNKNOWN, (), group, None, rank, suspects, why=why))
            continue
        half = matching(rings, rank, what)
        if half is None:
            if not peer.waits:
                why = f"rank {rank} waits in a {what.op}, and rank {what.peer} waits in no communication"
                found.append(FlightVerdict("cpu-stall", (what.peer,), group, None, rank, why=why))
        elif rank < what.peer and (half.numel, half.dtype) != (what.numel, what.dtype):
            found.append(_unequal(rings, rank, what, half, look))
    return found


def matching(rings: Rings, rank: int, what: RingTransfer) -> RingTransfer | None:
    """Return the transfer of the peer that belongs to this one, if it waits in that."""
    op = other_op(what.op)
    for wait in rings.ranks[what.peer].waits:
        if isinstance(wait, RingTransfer) and (wait.group, wait.op, wait.peer) == (what.group, op, rank):
            return wait
    return None


def _unequal(rings: Rings, rank: int, what: RingTransfer, half: RingTransfer, look: Look) -> FlightVerdict:
    """Return the verdict about a send and a receive of different size or type: who differs from its last one."""
    changed = []
    for who, one in ((rank, what), (what.peer, half)):
        before = rings.ranks[who].sizes.get((one.group, one.op, one.peer))
        if before is not None and before != one.numel:
            changed.append(who)
    if not changed:
        both = ((rank, what), (what.peer, half))
        unlike = {who: unlike_siblings(who, one, rings, look) for who, one in both}
        changed = [who for who in unlike if unlike[who] and unlike[what.peer if who == rank else rank] is False]
    group = rings.groups[what.group]
    why = f"rank {rank} waits in a {what.op} of {_amount(what)}, rank {what.peer} in a {half.op} of {_amount(half)}"
    if len(changed) == 1:
        other = what.peer if changed[0] == rank else rank
        return FlightVerdict("p2p", (changed[0],), group, None, other, why=why)
    return FlightVerdict("p2p", (), group, None, rank, tuple(sorted((rank, what.peer))), why=why)


def other_op(op: str) -> str:
    """Return what the peer of a send or receive has to do."""
    return "recv" if op == "send" else "send"


def _amount(what: RingTransfer) -> str:
    return f"{sum(what.numel)} {'/'.join(what.dtype)}"
