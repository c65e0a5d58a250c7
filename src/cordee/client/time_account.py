"""What the main thread's time went into, summed up from looks.

How long it ran and how long it did not is exact, since the kernel counts it. What it was at is seen only at the looks: time that it
ran is shared out as the last looks have seen it running, and time that it did not as they have seen it waiting. To give all of it to what the next look shows
would give too much to what stands last in a step. Time in which the whole process did not run is told by looks that come too late: each
late one stands for all the time that one look stands for, as a pause without looks is hit by as many of those that were due.
"""

from __future__ import annotations

from typing import Optional, Sequence

from cordee.client.device_steps import StepShares
from cordee.client.kinds import COMMUNICATION, COMPUTE, DATA, SAVING, UNKNOWN
from cordee.client.main_thread import Glance
from cordee.client.steps import ANYWHERE, BETWEEN, Mark
from cordee.wire.pulse import KINDS, KindSums, TimeSums

# Looks are apart by half to one and a half of this, so that they fall into no step with the training.
PERIOD_NS = 250_000_000
_KEEPS = 0.9  # of the weight of looks before, at each new one: the last two or three seconds tell
_LEAST_WEIGHT = 1e-30
_LEAST_STEP_S = 1e-3
_MOST_STAY_NS = 10**15


class TimeAccount:
    """Sums that only grow, for `TimeSums`; taken once in a look, by one thread."""

    def __init__(self) -> None:
        self._before: Optional[Glance] = None
        self._sums = [[0, 0, 0, 0] for _ in KINDS]
        # By the part of a step, and by whether the main thread runs.
        self._mixes = [[[0.0] * (UNKNOWN + 1) for _ in (False, True)] for _ in range(BETWEEN + 1)]
        self._part = ANYWHERE
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

    def take(self, glance: Glance, marks: Sequence[Mark] = (), device: Optional[StepShares] = None) -> None:
        """Take what a look has shown.

        Args:
            glance: the look.
            marks: where other parts of a step began since the look before.
            device: how a device has spent a step lately: the time goes by that, unless the look shows that the rank saves.
        """
        before, self._before = self._before, glance
        if before is None or glance.at_ns <= before.at_ns:
            self._stay_ns, self._part = 0, marks[-1].part if marks else self._part
            return
        passed = glance.at_ns - before.at_ns
        delayed = max(0, glance.delayed_ns - before.delayed_ns)
        parts = self._parts(before, glance, marks)
        idle = sum(part_passed - used for _, part_passed, used in parts)
        delayed = min(delayed, idle)
        unseen = self._unseen(glance.late_ns, idle - delayed)
        self._looked_ns += passed
        self._delayed_ns += delayed
        self._unseen_ns += unseen
        if device is not None and glance.kind != SAVING:
            self._take_shares(device, passed - unseen)
            return
        for mixes in self._mixes:
            for mix in mixes:
                mix[:] = [weight * _KEEPS for weight in mix]
        self._mixes[self._part][glance.runs][glance.kind] += 1.0
        for part, part_passed, used in parts:
            rest = part_passed - used
            ran = used + (rest * delayed // idle if idle else 0)
            apart = rest * (delayed + unseen) // idle if idle else 0
            self._share_out(self._mixes[part][True], ran)
            self._share_out(self._mixes[part][False], rest - apart)
        self._stay(glance.kind, before.kind, passed - unseen)

    def _take_shares(self, device: StepShares, ns: int) -> None:
        mix = [0.0] * (UNKNOWN + 1)
        mix[COMPUTE], mix[DATA], mix[COMMUNICATION] = device.compute, device.data, device.communication
        self._share_out(mix, ns)
        for kind in (COMPUTE, DATA, COMMUNICATION):
            stay = int(mix[kind] * device.seconds * 1e9)
            sums = self._sums[kind]
            sums[1] += 1
            sums[2] = max(sums[2], stay)
            sums[3] += int((stay / 1e6) ** 2 * (ns / 1e9) / max(device.seconds, _LEAST_STEP_S))

    def _parts(self, before: Glance, glance: Glance, marks: Sequence[Mark]) -> list[tuple[int, int, int]]:
        """Return the parts of steps between two looks, each with its time and what the main thread used of a processor in it."""
        found = []
        at, used, part = before.at_ns, before.used_ns, self._part
        for mark in (*marks, Mark(glance.at_ns, glance.used_ns, ANYWHERE)):
            until = min(max(mark.at_ns, at), glance.at_ns)
            if until > at:
                found.append((part, until - at, min(until - at, max(0, mark.used_ns - used))))
            at, used, part = until, max(used, mark.used_ns), mark.part
        if marks:
            self._part = marks[-1].part
        return found

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
