"""How far a node's ranks are in their data sets, and which position belongs to which checkpoint: told to the supervisor.

The names are those under which `cordee.dataset` logs its totals; `cordee.checkpointer` logs the step of a save after the
positions that it saved.
"""

from __future__ import annotations

import math
from typing import Any, Iterable

from cordee.checkpoint.timing import SECONDS
from cordee.client.channel import Event
from cordee.wire.messages import DataRead, DataSave

PREFIX = "cordee/data/"
_TOTALS = ("size", "begin", "position", "dropped")
_LARGEST = float(1 << 53)

_Key = tuple[int, int, str]


class _Turn:
    """What a rank did with a data set since the training began or a position was loaded in the middle of it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.totals: dict[str, Any] = {}
        self.before = 0
        self.saved = -1
        self.step = -1
        self.saves: list[DataSave] = []
        self.changed = False

    def take(self, numbers: dict[str, int]) -> None:
        if "begin" not in numbers:  # a position was just loaded, and nothing given since
            self.before = numbers.get("samples", 0)
        self.totals.update((name, numbers[name]) for name in _TOTALS if name in numbers)
        if "samples" in numbers:
            self.totals["given"] = numbers["samples"] - self.before
        saved = numbers.get("saved", self.saved)
        if saved != self.saved:
            self.saved = saved
            self.saves.append(DataSave(saved, given=self.totals.get("given")))
        self.changed = True

    def saved_as(self, step: int) -> None:
        """Say that the position that was told last is that of the checkpoint of this step."""
        if self.saved >= 0 and self.step != step:
            self.step, self.changed = step, True
            self.saves.append(DataSave(self.saved, step=step))


class DataPositions:
    """What each rank of this node said last, by data set."""

    def __init__(self) -> None:
        self._turns: dict[_Key, list[_Turn]] = {}

    def take(self, attempt: int, rank: int, events: Iterable[Event]) -> None:
        """Take a rank's events in their order."""
        for _, _, step, values in events:
            if step is None:
                for data_set, numbers in _by_set(values).items():
                    self._take_set((attempt, rank, data_set), numbers)
            elif SECONDS in values:
                for key, turns in self._turns.items():
                    if key[:2] == (attempt, rank):
                        turns[-1].saved_as(step)

    def news(self) -> tuple[DataRead, ...]:
        """Return what changed since the last call, one entry for each rank, set and turn: its totals, and positions saved."""
        news: list[DataRead] = []
        for (attempt, rank, data_set), turns in self._turns.items():
            for turn in turns:
                if turn.changed:
                    read = DataRead(attempt, rank, data_set, turn.number, saves=tuple(turn.saves))
                    news.append(read._replace(**turn.totals))
                    turn.saves, turn.changed = [], False
            del turns[:-1]
        return tuple(news)

    def _take_set(self, key: _Key, numbers: dict[str, int]) -> None:
        turns = self._turns.get(key)
        if turns is None:
            if "position" not in numbers:
                return
            turns = self._turns[key] = [_Turn(1)]
        if "begin" not in numbers and "begin" in turns[-1].totals:
            saved = turns[-1].saved
            turns.append(_Turn(turns[-1].number + 1))
            turns[-1].saved = numbers.get("saved", saved)
        turns[-1].take(numbers)


def _by_set(values: dict[str, float]) -> dict[str, dict[str, int]]:
    said: dict[str, dict[str, int]] = {}
    for name, value in values.items():
        if name.startswith(PREFIX) and math.isfinite(value) and abs(value) < _LARGEST:
            data_set, _, quantity = name[len(PREFIX) :].rpartition("/")
            said.setdefault(data_set, {})[quantity] = int(value)
    return said
