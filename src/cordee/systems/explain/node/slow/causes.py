"""Why a rank is slow, as far as it can be said: right, or unknown."""

from __future__ import annotations

from typing import NamedTuple, Sequence

from cordee.core.stats import median
from cordee.systems.explain.node.slow.rounds import (
    COMPUTE,
    DATA,
    DELAYED,
    NAN,
    SAVING,
    STOPPED,
    THROTTLED,
    RankPeers,
    RankRound,
)

HOST, UNKNOWN = "host", "unknown"
KINDS = (COMPUTE, DATA, SAVING)
# What the host takes explains it from here; a kind of time must explain more, since all that is left is in one of them.
_HOST_SHARE, _KIND_SHARE = 0.5, 0.6


class SlowCause(NamedTuple):
    """Where the time goes.

    Attributes:
        kind: compute, data, saving, host, link or unknown.
        how: of a host, what it does: stopped, delayed or throttled; else empty.
        more: share of its time beyond the peers', by kind of time.
        faults: page faults in a round beyond the peers'.
    """

    kind: str
    how: str
    more: dict[str, float]
    faults: float


def cause_of(rank: int, share: float, rounds: Sequence[RankRound], peers: RankPeers) -> SlowCause:
    """Return why a rank waits less than its peers.

    Args:
        share: by how much, as a share of its time.
        rounds: in which it did.
    """
    more = {}
    for what in (*KINDS, STOPPED, DELAYED, THROTTLED):
        beyond = [one.of(what)[rank] - peers.median(one.of(what), rank) for one in rounds]
        known = [value for value in beyond if value == value]
        more[what] = round(median(known), 4) if known else 0.0
    faults = [one.faults[rank] - peers.median(one.faults, rank) for one in rounds]
    read = median(faults) if any(value == value for value in faults) else NAN
    by_host = max(more[STOPPED] + more[DELAYED], more[THROTTLED])
    if by_host >= _HOST_SHARE * share:
        how = max((STOPPED, DELAYED), key=lambda what: more[what])
        # A throttled thread is delayed as well, so that the two are never far apart where it is the quota.
        least = more[how] / 2 if how == DELAYED else more[how]
        return SlowCause(HOST, THROTTLED if more[THROTTLED] >= least else how, more, read)
    first, second = sorted(KINDS, key=lambda what: -more[what])[:2]
    clear = more[first] >= _KIND_SHARE * share and more[second] <= more[first] / 2
    return SlowCause(first if clear else UNKNOWN, "", more, read)


def common_cause(causes: Sequence[SlowCause]) -> SlowCause:
    """Return the cause of several ranks: what they have in common, else unknown."""
    more = {what: round(median(cause.more[what] for cause in causes), 4) for what in causes[0].more}
    kinds, hows = {cause.kind for cause in causes}, {cause.how for cause in causes}
    known = [cause.faults for cause in causes if cause.faults == cause.faults]
    faults = median(known) if known else NAN
    if len(kinds) > 1:
        return SlowCause(UNKNOWN, "", more, faults)
    return SlowCause(kinds.pop(), hows.pop() if len(hows) == 1 else "", more, faults)
