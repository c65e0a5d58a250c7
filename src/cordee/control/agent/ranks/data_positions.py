"""How far a node's ranks are in their data sets, and which position belongs to which checkpoint: told to the supervisor."""

from __future__ import annotations

from typing import Iterable, Optional

from cordee.wire.facts import ChannelFact, CheckpointFact, DataPositionFact
from cordee.wire.messages import DataRead, DataSave

_LONGEST_NAME = 200
_LARGEST = 1 << 53
_MOST_SETS = 1000  # of one rank

_Key = tuple[int, int]


class _Said:
    """What a rank said last of a data set, and its saves that the supervisor was not told of."""

    def __init__(self, fact: DataPositionFact) -> None:
        self.fact = fact
        self.saved: Optional[int] = None
        self.step = -1
        self.saves: list[DataSave] = []
        self.changed = False

    def take(self, fact: DataPositionFact) -> None:
        self.fact, self.changed = fact, True
        if fact.saved is not None and fact.saved != self.saved:
            self.saved = fact.saved
            self.saves.append(DataSave(fact.saved, given=fact.saved_given))

    def saved_as(self, step: int) -> None:
        """Say that the position that was told last is that of the checkpoint of this step."""
        if self.saved is not None and self.step != step:
            self.step, self.changed = step, True
            self.saves.append(DataSave(self.saved, step=step))

    def news(self, attempt: int, rank: int) -> Optional[DataRead]:
        """Return what changed since the last call; None: nothing."""
        if not self.changed:
            return None
        fact, saves = self.fact, tuple(self.saves)
        self.saves, self.changed = [], False
        return DataRead(
            *(attempt, rank, fact.data_set, fact.turn, fact.size),
            *(fact.begin, fact.position, fact.given, fact.dropped, saves),
        )


class DataPositions:
    """What each rank of this node said last, by data set."""

    def __init__(self) -> None:
        self._said: dict[_Key, dict[str, _Said]] = {}
        self._news: list[DataRead] = []

    def take(self, attempt: int, rank: int, facts: Iterable[ChannelFact]) -> None:
        """Take what a rank told, in its order; what is no position of a real data set is passed over."""
        for fact in facts:
            if isinstance(fact, DataPositionFact):
                if _is_sound(fact):
                    self._take_set((attempt, rank), fact)
            elif isinstance(fact, CheckpointFact) and 0 <= fact.step < _LARGEST:
                for said in self._said.get((attempt, rank), {}).values():
                    said.saved_as(fact.step)

    def news(self) -> tuple[DataRead, ...]:
        """Return what changed since the last call, one entry for each rank, set and turn: its totals, and positions saved."""
        news, self._news = self._news, []
        news += filter(None, (said.news(*key) for key, sets in self._said.items() for said in sets.values()))
        return tuple(news)

    def _take_set(self, key: _Key, fact: DataPositionFact) -> None:
        sets = self._said.setdefault(key, {})
        said = sets.get(fact.data_set)
        if said is None:
            if fact.position is None or len(sets) >= _MOST_SETS:
                return
            said = sets[fact.data_set] = _Said(fact)
        if fact.turn != said.fact.turn:
            self._news += filter(None, [said.news(*key)])
        said.take(fact)


def _is_sound(fact: DataPositionFact) -> bool:
    """Return whether a name and numbers are such as a message can carry."""
    numbers = [value for value in fact[1:] if value is not None]
    return len(fact.data_set) <= _LONGEST_NAME and all(0 <= value < _LARGEST for value in numbers)
