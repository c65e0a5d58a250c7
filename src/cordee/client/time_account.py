"""What the main thread's time went into, summed up from looks.

How long it ran and how long it did not is exact, since the kernel counts it. What it was at is seen only at the looks: time that it
ran is shared out as the last looks have seen it running, and time that it did not as they have seen it waiting. To give all of it to what the next look shows
would give too much to what stands last in a step. Time in which the whole process did not run is told by looks that come too late: each
late one stands for all the time that one look stands for, as a pause without looks is hit by as many of those that were due.
"""

from __future__ import annotations

from typing import Optional

from cordee.client.kinds import UNKNOWN
from cordee.client.main_thread import Glance
from cordee.wire.pulse import KINDS, KindSums, TimeSums

# Looks are apart by half to one and a half of this, so that they fall into no step with the training.
PERIOD_NS = 200_000_000
_KEEPS = 0.9  # of the weight of looks before, at each new one: the last two seconds tell
_LEAST_WEIGHT = 1e-30
_MOST_STAY_NS = 10**15


class TimeAccount:
    """Sums that only grow, for `TimeSums`; taken once in a look, by one thread."""

    def __init__(self) -> None:
        self._before: Optional[Glance] = None
        self._sums = [[0, 0, 0, 0] for _ in KINDS]
        self._mixes = ([0.0] * (UNKNOWN + 1), [0.0] * (UNKNOWN + 1))
        self._rests = [0.0] * len(KINDS)
        self._looked_ns = self._delayed_ns = self._unseen_ns = 0
        self._owed_ns = 0
        self._stay_ns = 0

    def sums(self, window: int, faults: int) -> TimeSums:
        """Return all sums, and whose window they are."""
        kinds = tuple(KindSums(*sums) for sums in self._sums)
        return TimeSums(window, self._looked_ns, self._delayed_ns, self._unseen_ns, faults, kinds)

    def open_window(self) -> None:
        """Another window begins: the longest stays are looked for anew."""
        for sums in self._sums:
            sums[2] = 0

    def pause(self) -> None:
        """Nothing is looked at until the next look, which is taken for a first one."""
        self._before = None

    def take(self, glance: Glance) -> None:
        """Take what a look has shown."""
        before, self._before = self._before, glance
        if before is None or glance.at_ns <= before.at_ns:
            self._stay_ns = 0
            return
        passed = glance.at_ns - before.at_ns
        delayed = max(0, glance.delayed_ns - before.delayed_ns)
        ran = min(passed, max(0, glance.used_ns - before.used_ns) + delayed)
        rest = passed - ran
        unseen = self._unseen(glance.late_ns, rest)
        rest -= unseen
        self._looked_ns += passed
        self._delayed_ns += min(delayed, passed)
        self._unseen_ns += unseen
        for mix in self._mixes:
            mix[:] = [weight * _KEEPS for weight in mix]
        self._mixes[glance.runs][glance.kind] += 1.0
        self._share_out(self._mixes[True], ran)
        self._share_out(self._mixes[False], rest)
        self._stay(glance.kind, before.kind, passed - unseen)

    def _unseen(self, late: int, rest: int) -> int:
        """Return how much of the time in which the main thread did not run nobody ran; what is known too late counts later."""
        if late > 0 and rest >= late:
            self._owed_ns += PERIOD_NS * (1 + late // PERIOD_NS)
        unseen = min(self._owed_ns, rest)
        self._owed_ns -= unseen
        return unseen

    def _share_out(self, mix: list[float], ns: int) -> None:
        whole = sum(mix)
        if not ns or whole < _LEAST_WEIGHT:
            return
        for kind in range(len(KINDS)):
            if mix[kind]:
                exact = ns * mix[kind] / whole + self._rests[kind]
                self._rests[kind] = exact % 1
                self._sums[kind][0] += int(exact)

    def _stay(self, kind: int, kind_before: int, ns: int) -> None:
        if kind != kind_before:
            self._stay_ns = 0
        if kind == UNKNOWN:
            return
        sums = self._sums[kind]
        stay_before, self._stay_ns = self._stay_ns, min(self._stay_ns + ns, _MOST_STAY_NS)
        sums[1] += 1
        sums[2] = max(sums[2], self._stay_ns)
        sums[3] += (self._stay_ns // 1_000_000) ** 2 - (stay_before // 1_000_000) ** 2
