"""User metrics as tables: what ranks logged, column by column, and thinned to one row per step.

A table is float64 (column, row): `EVENT_COLUMNS` with one row per value, or `STEP_COLUMNS` with one row per metric, attempt
and step. Names stand as their places in a list, of which there are at most `MOST_RUN_NAMES`: values of further names are counted.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from cordee.telemetry.node.blocklog import BESIDE_CHANNEL, MOST_RUN_NAMES
from cordee.telemetry.store.sealed import EVENT_COLUMNS, STEP_COLUMNS

if TYPE_CHECKING:
    from cordee.telemetry.store.model import LoggedEvent


def stream_of(rank: int, offset: int) -> str:
    """Return the name of what an offset rises in: the rank's channel, or what was taken beside it."""
    return str(rank) if offset < BESIDE_CHANNEL else f"{rank}+"


class Names:
    """The places of metric names in their list.

    Args:
        known: names in their order.

    Attributes:
        capped_values: values whose names had no place any more.
    """

    def __init__(self, known: Iterable[str] = ()) -> None:
        self._places = {name: at for at, name in enumerate(known)}
        self.capped_values = 0

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def get(self, name: str) -> int | None:
        """Return the place of a name; None when nobody logged it."""
        return self._places.get(name)

    def place(self, name: str) -> int | None:
        """Return the place of a name, a new one if need be; None, and counted, when there are too many."""
        at = self._places.get(name)
        if at is None:
            if len(self._places) >= MOST_RUN_NAMES:
                self.capped_values += 1
                return None
            at = self._places[name] = len(self._places)
        return at


def table_of(events: Iterable[LoggedEvent], names: Names) -> np.ndarray:
    """Return events as a table of `EVENT_COLUMNS`, in their order; a step that is not there is NaN."""
    flat = array("d")
    for attempt, rank, offset, moment, step, values in events:
        shown = float("nan") if step is None else step
        for name, value in values.items():
            code = names.place(name)
            if code is not None:
                flat.extend((code, attempt, rank, offset, shown, moment, value))
    return np.frombuffer(flat, dtype=np.float64).reshape(-1, len(EVENT_COLUMNS)).T


def thinned(table: np.ndarray) -> np.ndarray:
    """Return a table of `EVENT_COLUMNS` as one of `STEP_COLUMNS`; values without a step are left out."""
    table = table[:, table[4] >= 0]
    name, attempt, _, _, step, moment, value = table
    return _joined(np.stack([name, attempt, step, np.ones(len(name)), value, value, value, moment]))


def without_steps(rows: np.ndarray) -> np.ndarray:
    """Return events of one metric, as `Run.events` gives them, as a table whose steps count each rank's calls, over all attempts."""
    steps = np.zeros(len(rows))
    for rank in np.unique(rows["rank"]):
        mine = rows["rank"] == rank
        steps[mine] = np.arange(mine.sum())
    columns = (np.zeros(len(rows)), rows["attempt"], rows["rank"], rows["offset"], steps, rows["time"], rows["value"])
    return np.stack([column.astype(np.float64) for column in columns])


def joined(tables: Iterable[np.ndarray]) -> np.ndarray:
    """Return tables of `STEP_COLUMNS` as one in which each step of a metric and attempt stands once."""
    return _joined(np.concatenate([np.zeros((len(STEP_COLUMNS), 0)), *tables], axis=1))


def newest_attempts(table: np.ndarray) -> np.ndarray:
    """Return the rows of one metric in the order of steps; where a restart repeated a step, its newest attempt."""
    order = np.lexsort((table[1], table[2]))
    table = table[:, order]
    last = np.r_[table[2][1:] != table[2][:-1], True] if table.shape[1] else np.zeros(0, dtype=bool)
    return table[:, last]


def in_a_row(table: np.ndarray) -> np.ndarray:
    """Return the rows of one metric whose steps an attempt counts from 0: each attempt's go on from the last of the one before."""
    table, begin = table.copy(), 0.0
    for attempt in np.unique(table[1]):
        mine = table[1] == attempt
        table[2, mine] += begin
        begin = table[2, mine].max() + 1
    return table


def _joined(table: np.ndarray) -> np.ndarray:
    if not table.shape[1]:
        return table
    table = table[:, np.lexsort((table[2], table[1], table[0]))]
    keys = table[:3]
    begins = np.flatnonzero(np.r_[True, (keys[:, 1:] != keys[:, :-1]).any(axis=0)])
    found = np.empty((len(STEP_COLUMNS), len(begins)))
    found[:3] = keys[:, begins]
    with np.errstate(invalid="ignore"):  # infinities of both signs have no sum
        for column, reduce in ((3, np.add), (4, np.add), (5, np.minimum), (6, np.maximum), (7, np.maximum)):
            found[column] = reduce.reduceat(table[column], begins)
    return found
