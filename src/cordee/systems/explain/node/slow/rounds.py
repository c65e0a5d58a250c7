"""What all ranks did with their time between two looks, side by side."""

from __future__ import annotations

from array import array
from typing import Iterable, Mapping, NamedTuple

from cordee.core.stats import median
from cordee.wire.messages import RankDigest

NAN = float("nan")
# Of less than this share of its time nothing can be said of a rank.
_KNOWN_SHARE = 0.25
WAITING, COMPUTE, DATA, SAVING, STOPPED, DELAYED, THROTTLED = (
    *("waiting", "compute", "data", "saving"),
    *("stopped", "delayed", "throttled"),
)


class RankRound(NamedTuple):
    """Shares of the time of each rank, by rank; NaN where too little is known of it.

    Attributes:
        began, ended: monotonic seconds.
        steps: the median of the ranks' steps; NaN where nobody was heard.
        faults: page faults for which something was read.
    """

    began: float
    ended: float
    steps: float
    waiting: array[float]
    compute: array[float]
    data: array[float]
    saving: array[float]
    stopped: array[float]
    delayed: array[float]
    throttled: array[float]
    faults: array[float]

    def of(self, what: str) -> array[float]:
        """Return the shares of one kind of time."""
        values: array[float] = getattr(self, what)
        return values


class RoundBeingHeard:
    """Takes digests until its end; several of one rank are added up.

    Args:
        world: how many ranks there are; what others tell is not taken.
    """

    def __init__(self, world: int, began: float) -> None:
        self.began = began
        self._world = world
        self._sums: dict[int, list[float]] = {}

    def take(self, digests: Iterable[RankDigest]) -> None:
        """Add what ranks tell; what cannot be is left out."""
        sums, world = self._sums, self._world
        for one in digests:
            if not (0 <= one.rank < world and 0 < one.window_s < float("inf")):
                continue
            row = (
                *(one.window_s, one.steps, one.communication.seconds, one.compute.seconds, one.data.seconds),
                *(one.saving.seconds, one.unseen_s, one.delayed_s, one.throttled_s, one.faults),
            )
            before = sums.get(one.rank)
            sums[one.rank] = list(row) if before is None else [old + new for old, new in zip(before, row)]

    @property
    def heard(self) -> bool:
        """Whether any rank has told something."""
        return bool(self._sums)

    @property
    def steps(self) -> float:
        """The median of the ranks' steps, NaN where nobody was heard."""
        return median(row[1] for row in self._sums.values()) if self._sums else NAN

    def close(self, now: float) -> RankRound:
        """Return what was heard."""
        columns = [array("d", [NAN]) * self._world for _ in range(8)]
        waiting, compute, data, saving, stopped, delayed, throttled, faults = columns
        for rank, row in self._sums.items():
            window_s, _, wait_s, compute_s, data_s, saving_s, unseen_s, delayed_s, throttled_s, read = row
            known_s = wait_s + compute_s + data_s + saving_s + unseen_s
            if not known_s >= _KNOWN_SHARE * window_s:
                continue
            waiting[rank] = wait_s / window_s
            compute[rank], data[rank], saving[rank] = compute_s / window_s, data_s / window_s, saving_s / window_s
            stopped[rank], delayed[rank] = unseen_s / window_s, delayed_s / window_s
            throttled[rank], faults[rank] = throttled_s / window_s, read
        return RankRound(self.began, now, self.steps, *columns)


class RankPeers:
    """Who is compared with whom.

    Args:
        world: how many ranks there are.
        group_of: see `cordee.core.stats.peers_of`.
    """

    def __init__(self, world: int, group_of: Mapping[int, object]) -> None:
        groups: dict[object, list[int]] = {}
        for rank in range(world):
            groups.setdefault(group_of.get(rank), []).append(rank)
        self.groups = list(groups.values())
        self._of = {rank: members for members in self.groups for rank in members}

    def of(self, rank: int) -> list[int]:
        """Return the group of a rank, with it."""
        return self._of[rank]

    def median(self, values: array[float], rank: int) -> float:
        """Return the median of the rank's group; NaN where none of it is known."""
        known = [values[peer] for peer in self._of[rank]]
        return median(known) if any(value == value for value in known) else NAN

    def below(self, values: array[float]) -> array[float]:
        """Return by how much each value lies below the median of its group."""
        found = array("d", [NAN]) * len(values)
        for members in self.groups:
            known = [values[rank] for rank in members if values[rank] == values[rank]]
            if known:
                centre = median(known)
                for rank in members:
                    found[rank] = centre - values[rank]
        return found
