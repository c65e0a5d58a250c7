"""Writes into the journal which positions of data sets each attempt's ranks were given, before agents may forget it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Optional

from cordee.runs.journal import JournalWriter
from cordee.wire import messages


@dataclass
class _Save:
    """One position that ranks said to have saved: by rank how many samples it had been given, None where not told."""

    given: dict[int, Optional[int]] = field(default_factory=dict)
    step: Optional[int] = None

    def document(self, position: int) -> dict[str, Any]:
        counts = list(self.given.values())
        known = [count for count in counts if count is not None]
        return {
            "position": position,
            "step": self.step,
            "readers": len(counts),
            "given": sum(known) if known and len(known) == len(counts) else None,
        }


@dataclass
class _Read:
    """One data set in one attempt."""

    last: dict[int, messages.DataRead] = field(default_factory=dict)
    saves: dict[int, _Save] = field(default_factory=dict)
    changed_saves: set[int] = field(default_factory=set)
    begins: dict[int, Optional[int]] = field(default_factory=dict)
    due: bool = False
    changed: bool = False

    def take(self, said: messages.DataRead) -> None:
        rank = said.rank
        self.last[rank] = said._replace(saves=())
        self.changed = True
        if self.begins.get(rank, -1) != said.begin:
            self.begins[rank] = said.begin
            self.due = True
        for told in said.saves:
            save = self.saves.setdefault(told.position, _Save())
            if told.step is not None:
                save.step = told.step
            else:
                save.given[rank] = told.given
            self.changed_saves.add(told.position)
            self.due = True

    def told(self, name: str) -> list[int]:
        """Return what the ranks said of one total, those that said it."""
        return [told for told in (getattr(rank, name) for rank in self.last.values()) if told is not None]


class DataReadLog:
    """What the ranks said of their data sets; written when a position is saved or begun with, and when an attempt ends.

    A later event of the same attempt, set and turn replaces an earlier one, and each of its saves the same one there. A turn
    ends where the script loads a position in the middle of its training.

    Args:
        journal: the supervisor's.
    """

    def __init__(self, journal: JournalWriter) -> None:
        self._journal = journal
        self._reads: dict[tuple[int, str, int], _Read] = {}
        self._ended: set[int] = set()

    def take(self, said: Iterable[messages.DataRead]) -> None:
        """Take what an agent says of its ranks."""
        for entry in said:
            self._reads.setdefault((entry.attempt, entry.set, entry.turn), _Read()).take(entry)

    def end(self, attempt: int) -> None:
        """From now on write all that is heard of an attempt: no later news is to be expected."""
        self._ended.add(attempt)

    def write(self) -> None:
        """Write what is due."""
        for (attempt, data_set, turn), read in self._reads.items():
            if read.due or (read.changed and attempt in self._ended):
                given = read.told("given")
                self._journal.append(
                    "data_read",
                    durable=False,
                    attempt=attempt,
                    set=data_set,
                    turn=turn,
                    size=max(read.told("size"), default=None),
                    begin=sorted(set(read.told("begin"))),
                    position=max(read.told("position"), default=None),
                    readers=len(read.last),
                    given=sum(given) if len(given) == len(read.last) else None,
                    dropped=max(read.told("dropped"), default=0),
                    saves=[read.saves[position].document(position) for position in sorted(read.changed_saves)],
                )
                read.due = read.changed = False
                read.changed_saves.clear()
