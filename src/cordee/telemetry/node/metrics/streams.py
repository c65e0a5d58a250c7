"""Values on their way into the block log: events of ranks, each with an offset that no other event of the rank has."""

from __future__ import annotations

import threading
import time
from typing import Callable, Sequence

from cordee.telemetry.node.blocklog import BESIDE_CHANNEL, encode_events
from cordee.telemetry.node.logged_names import LoggedNames
from cordee.telemetry.node.metrics.points import Recorded
from cordee.wire.channel import bounded_name
from cordee.wire.facts import SourceFact

_TICKS_PER_S = 100_000
_MOST_WAITING = 200_000


class Streams:
    """Collects values from any thread; `records` turns what there is into records.

    Offsets follow the clock, so that they rise also over restarts of this process, and lie above those of any channel.

    Args:
        node: the node's name.
        clock: UTC epoch seconds.
    """

    def __init__(self, node: str, clock: Callable[[], float] = time.time) -> None:
        self._node, self._clock = node, clock
        self._names = LoggedNames(node)
        self._guard = threading.Lock()
        self._waiting: dict[tuple[int, int], list[tuple[int, float, None, dict[str, float]]]] = {}
        self._count = 0
        self._dropped: dict[tuple[int, int], int] = {}
        self._last = 0

    def add(self, source: str, rank: int, attempt: int, moment: float, values: Sequence[Recorded]) -> None:
        """Take values of one moment; where nobody takes them away they are counted as dropped."""
        if not values:
            return
        values = [value._replace(name=bounded_name(value.name)) for value in values]
        numbers = {value.name: value.value for value in values}
        with self._guard:
            if self._count + len(numbers) > _MOST_WAITING:
                self._dropped[rank, attempt] = self._dropped.get((rank, attempt), 0) + 1
                return
            self._last = max(self._last + 1, int(self._clock() * _TICKS_PER_S))
            event = (BESIDE_CHANNEL + self._last, moment, None, numbers)
            self._waiting.setdefault((rank, attempt), []).append(event)
            self._count += len(numbers)
            self._names.take(SourceFact(one.name, source, unit=one.unit) for one in values)

    def records(self) -> bytes:
        """Return records of all that was added since the last call, empty when nothing was."""
        with self._guard:
            waiting, dropped = self._waiting, self._dropped
            self._waiting, self._dropped, self._count = {}, {}, 0
            facts = self._names.news()
        return facts + b"".join(
            encode_events(self._node, rank, attempt, dropped.get((rank, attempt), 0), waiting.get((rank, attempt), ()))
            for rank, attempt in sorted({*waiting, *dropped})
        )
