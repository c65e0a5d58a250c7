"""What loading costs a training, told to the run about once a second, more seldom by many ranks and in long runs: totals of this process, as `cordee.log` takes them."""

from __future__ import annotations

import os
import time
import weakref
from dataclasses import fields
from typing import Optional, Sequence

from cordee.client.log import log
from cordee.client.rank import tell_fact
from cordee.systems.data.node.read.counters import ReadCounts
from cordee.wire.facts import DataPositionFact

EVERY_S = 1.0
# A thousand ranks that tell twenty totals a second for a day are more rows than all their metrics.
_RANKS_A_SECOND = 64
_BRISK_S, _LATER_EVERY_S = 600.0, 10.0
_LONGEST_NAME = 100


def summed(parts: Sequence[ReadCounts]) -> ReadCounts:
    """Return the sum of several counts."""
    total = ReadCounts()
    for part in parts:
        for field in fields(ReadCounts):
            if field.name == "sizes":
                total.sizes = [one + other for one, other in zip(total.sizes, part.sizes)]
            else:
                setattr(total, field.name, getattr(total, field.name) + getattr(part, field.name))
    return total


class Teller:
    """Tells one data set's totals under `cordee/data/<name>/` and its position; outside a run it does nothing. Never raises.

    A second data set of the same name, in the same process, is told of as `<name>.2`.

    What one telling says is true by itself: an agent that heard none of those before it takes it for what it is.

    Attributes:
        turn: counts, from 1, what is between positions that were loaded after a batch was given.
        begin: the first position given in this turn; None: none yet.
        position: the position after the last batch given.
        saved: the position that the last `state_dict` of this turn said; None: none was asked for.
        saved_given: how many samples of this turn this process had been given then.
        limit_bytes_per_second: what storage gives at most, as `cordee data bench` measured it; None: not known.
    """

    def __init__(self, name: str, size: int) -> None:
        self.active = bool(os.environ.get("CORDEE_CHANNEL"))
        self._name = _own_name(name, self) if self.active else name
        self._size = size
        self._began = time.monotonic()
        self._due = 0.0
        ranks = os.environ.get("WORLD_SIZE", "")
        self._every_s = max(EVERY_S, int(ranks) / _RANKS_A_SECOND if ranks.isdigit() else 0.0)
        self.turn = 1
        self._samples_before = 0
        self.begin: Optional[int] = None
        self.position: Optional[int] = None
        self.saved: Optional[int] = None
        self.saved_given: Optional[int] = None
        self.dropped = 0
        self.limit_bytes_per_second: Optional[float] = None

    @property
    def due(self) -> bool:
        """Whether the last telling is so long ago that it is time for the next."""
        return self.active and time.monotonic() >= self._due

    def save(self, position: int, samples: int) -> None:
        """Take note that a position was asked for when this process had been given so many samples in all."""
        self.saved, self.saved_given = position, samples - self._samples_before

    def load(self, position: int, samples: int) -> None:
        """Take note that a position was loaded when this process had been given so many samples in all."""
        if self.begin is not None:
            self.turn += 1
        self.begin, self.position, self._samples_before = None, position, samples
        self.saved = self.saved_given = None

    def tell(self, counts: ReadCounts) -> None:
        """Tell now."""
        if not self.active:
            return
        now = time.monotonic()
        later = now - self._began > _BRISK_S
        self._due = now + (max(self._every_s, _LATER_EVERY_S) if later else self._every_s)
        try:
            log(None, **{f"cordee/data/{self._name}/{name}": value for name, value in self._values(counts).items()})
            tell_fact("cordee.dataset", self._position(counts))
        except Exception:  # a training does not fail because of what is told about it
            return

    def _position(self, counts: ReadCounts) -> DataPositionFact:
        given = counts.samples - self._samples_before
        ever = (self.begin, self.position, self.saved, self.saved_given)
        known = (None if number is None else int(number) for number in ever)
        return DataPositionFact(self._name, self.turn, int(self._size), int(given), int(self.dropped), *known)

    def _values(self, counts: ReadCounts) -> dict[str, float]:
        values: dict[str, Optional[float]] = {
            "wait_seconds": counts.wait_s,
            "busy_seconds": counts.busy_s,
            "batches": counts.batches,
            "samples": counts.samples,
            "bytes": counts.bytes,
            "requests": counts.requests,
            "opens": counts.opens,
            "skipped": counts.skipped,
            "advised": counts.advised or None,
            "advised_bytes": counts.advised_bytes or None,
            "dropped": self.dropped,
            "position": self.position,
            "limit_bytes_per_second": self.limit_bytes_per_second,
        }
        if self.position is not None:
            values["epoch"] = self.position // self._size
        for power, number in enumerate(counts.sizes):
            if number:
                values[f"requests_le/{1 << power}"] = number
        return {name: float(value) for name, value in values.items() if value is not None}


_tellers: "weakref.WeakValueDictionary[str, Teller]" = weakref.WeakValueDictionary()


def _own_name(name: str, teller: Teller) -> str:
    """Return the name under which a data set is told of: none that another one of this process has."""
    plain = name.replace("/", "_")[:_LONGEST_NAME]
    found, number = plain, 1
    while found in _tellers:
        number += 1
        found = f"{plain}.{number}"
    _tellers[found] = teller
    return found
