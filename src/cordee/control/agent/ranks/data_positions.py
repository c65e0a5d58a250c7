"""How far a node's ranks are in their data sets, and which position belongs to which checkpoint: told to the supervisor.

The names are those under which `cordee.dataset` logs its totals; `cordee.checkpointer` logs the step of a save after the
positions that it saved.
"""

from __future__ import annotations

import math
from typing import Any, Iterable, Optional

from cordee.client.reserved import CHECKPOINT_SECONDS
from cordee.wire.channel import Event
from cordee.wire.messages import DataRead, DataSave

PREFIX = "cordee/data/"
_TOTALS = ("size", "begin", "position", "given", "dropped")
_LARGEST = float(1 << 53)

_Key = tuple[int, int, str]


class _Said:
    """What a rank said last of a data set, and its saves that the supervisor was not told of."""

    def __init__(self) -> None:
        self.turn = 1
        self.totals: dict[str, Any] = {}
        self.saved: Optional[int] = None
        self.step = -1
        self.saves: list[DataSave] = []
        self.changed = False

    def take(self, numbers: dict[str, int]) -> None:
        self.totals.update((name, numbers[name]) for name in _TOTALS if name in numbers)
        saved = numbers.get("saved")
        if saved is not None and saved != self.saved:
            self.saved = saved
            self.saves.append(DataSave(saved, given=numbers.get("saved_given")))
        self.changed = True

    def saved_as(self, step: int) -> None:
        """Say that the position that was told last is that of the checkpoint of this step."""
        if self.saved is not None and self.step != step:
            self.step, self.changed = step, True
            self.saves.append(DataSave(self.saved, step=step))

    def news(self, attempt: int, rank: int, data_set: str) -> Optional[DataRead]:
        """Return what changed since the last call; None: nothing."""
        if not self.changed:
            return None
        read = DataRead(attempt, rank, data_set, self.turn, saves=tuple(self.saves), **self.totals)
        self.saves, self.changed = [], False
        return read


class DataPositions:
    """What each rank of this node said last, by data set."""

    def __init__(self) -> None:
        self._said: dict[_Key, _Said] = {}
        self._news: list[DataRead] = []

    def take(self, attempt: int, rank: int, events: Iterable[Event]) -> None:
        """Take a rank's events in their order."""
        for _, _, step, values in events:
            if step is None:
                for data_set, numbers in _by_set(values).items():
                    self._take_set((attempt, rank, data_set), numbers)
            elif CHECKPOINT_SECONDS in values:
                for key, said in self._said.items():
                    if key[:2] == (attempt, rank):
                        said.saved_as(step)

    def news(self) -> tuple[DataRead, ...]:
        """Return what changed since the last call, one entry for each rank, set and turn: its totals, and positions saved."""
        news, self._news = self._news, []
        news += filter(None, (said.news(*key) for key, said in self._said.items()))
        return tuple(news)

    def _take_set(self, key: _Key, numbers: dict[str, int]) -> None:
        said = self._said.get(key)
        if said is None:
            if "position" not in numbers:
                return
            said = self._said[key] = _Said()
        turn = numbers.get("turn", said.turn)
        if turn != said.turn:
            self._news += filter(None, [said.news(*key)])
            said.turn, said.totals = turn, {}
        said.take(numbers)


def _by_set(values: dict[str, float]) -> dict[str, dict[str, int]]:
    said: dict[str, dict[str, int]] = {}
    for name, value in values.items():
        if name.startswith(PREFIX) and math.isfinite(value) and abs(value) < _LARGEST:
            data_set, _, quantity = name[len(PREFIX) :].rpartition("/")
            said.setdefault(data_set, {})[quantity] = int(value)
    return said
