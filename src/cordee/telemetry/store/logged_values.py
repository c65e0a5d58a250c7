"""What ranks logged, sealed or not, as one: all of it, or thinned to one value per step without reading the rest."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from cordee.telemetry.node.blocklog import BESIDE_CHANNEL
from cordee.telemetry.store.sealed import Commit, read_events, read_steps
from cordee.telemetry.store.series import in_a_row, joined, newest_attempts, stream_of, thinned
from cordee.telemetry.store.unsealed.tail import UnsealedTail

EVENT = np.dtype(
    [("attempt", "<i4"), ("rank", "<i4"), ("offset", "<i8"), ("step", "<i8"), ("time", "<f8"), ("value", "<f8")]
)
_NOTHING_SEALED = -1


class UserMetrics:
    """The user metrics of one run.

    Args:
        telemetry: the run's `telemetry/` folder.
        tail: what is not sealed; its owner reads on.
    """

    def __init__(self, telemetry: Path, tail: UnsealedTail) -> None:
        self._telemetry = telemetry
        self._tail = tail
        self._commit_key: Any = _NOTHING_SEALED
        self._sealed = joined([])
        self._thin: dict[Path, tuple[int, np.ndarray]] = {}
        self._marks: dict[tuple[int, str], float] = {}

    def names(self, commit: Commit) -> list[str]:
        """Return the metrics' names, in order."""
        return sorted({*commit.event_names, *(self._tail.names or ())})

    def events(self, commit: Commit, name: str | Collection[str] | None) -> dict[str, np.ndarray]:
        """Return what `Run.events` describes."""
        wanted = {name} if isinstance(name, str) else None if name is None else set(name)
        found: dict[str, list[np.ndarray]] = {}
        for metric, table in [*self._tail_rows(wanted), *self._sealed_rows(commit, wanted)]:
            rows = np.zeros(table.shape[1], dtype=EVENT)
            for column, values in zip(EVENT.names or (), table, strict=True):
                rows[column] = np.where(np.isnan(values), -1, values) if column == "step" else values
            found.setdefault(metric, []).append(rows)
        return {metric: _once(np.concatenate(found[metric])) for metric in sorted(found)}

    def steps(self, commit: Commit, commit_key: Any, name: str, counted: bool = False) -> np.ndarray:
        """Return the table of steps of a metric, newest attempts in the order of steps; none where it has no steps.

        Args:
            counted: each attempt counts its steps from 0.
        """
        table = self._steps(commit, commit_key, name)
        return newest_attempts(in_a_row(table) if counted else table)

    def _steps(self, commit: Commit, commit_key: Any, name: str) -> np.ndarray:
        if commit.step_rows is None:  # sealed before there was such a table
            whole = [table for table in self._whole(commit, name) if table.shape[1]]
            return joined(thinned(table) for table in whole)
        self._update(commit, commit_key)
        pieces = []
        if name in commit.event_names:
            pieces.append(self._sealed[:, self._sealed[0] == commit.event_names.index(name)])
        code = self._tail.names.get(name) if self._tail.names is not None else None
        if code is not None:
            pieces += [table[:, table[0] == code] for _, table in self._thin.values()]
        pieces = [piece.copy() for piece in pieces]
        for piece in pieces:
            piece[0] = 0
        return joined(pieces)

    def _update(self, commit: Commit, commit_key: Any) -> None:
        """Thin what is new in the tail; what is sealed is read once per sealing."""
        if commit_key != self._commit_key:
            self._sealed = read_steps(self._telemetry, commit.step_rows or 0)
            self._commit_key = commit_key
            self._thin.clear()
            self._marks.clear()
        for path in [path for path in self._thin if path not in self._tail.tables]:
            del self._thin[path]
        for path, tables in self._tail.tables.items():
            done, thin = self._thin.get(path, (0, joined([])))
            if done < len(tables):
                news = [thinned(self._fresh(table, commit)) for table in tables[done:]]
                self._thin[path] = (len(tables), joined([thin, *news]))

    def _fresh(self, table: np.ndarray, commit: Commit) -> np.ndarray:
        """Return the rows that were not there before: a supervisor that died may have stored some twice."""
        table = table[:, np.lexsort((table[0], table[3], table[2], table[1]))]
        keys = table[:4]
        table = table[:, np.r_[True, (keys[:, 1:] != keys[:, :-1]).any(axis=0)]]
        streams = np.vstack([table[1:3], table[3] >= BESIDE_CHANNEL])
        begins = np.flatnonzero(np.r_[True, (streams[:, 1:] != streams[:, :-1]).any(axis=0)])
        ends = np.r_[begins[1:], table.shape[1]]
        marks = np.empty(len(begins))
        for at, (begin, end) in enumerate(zip(begins.tolist(), ends.tolist(), strict=True)):
            attempt, stream = int(table[1, begin]), stream_of(int(table[2, begin]), int(table[3, begin]))
            key = attempt, stream
            if key not in self._marks:
                self._marks[key] = commit.watermarks.get(str(attempt), {}).get(stream, -1)
            marks[at] = self._marks[key]
            self._marks[key] = max(self._marks[key], table[3, end - 1])
        return table[:, table[3] > np.repeat(marks, ends - begins)]

    def _whole(self, commit: Commit, name: str) -> Iterator[np.ndarray]:
        rows = self.events(commit, name).get(name)
        if rows is not None:
            columns = [rows[column].astype(np.float64) for column in EVENT.names or ()]
            columns[3][columns[3] < 0] = np.nan
            yield np.stack([np.zeros(len(rows)), *columns])

    def _tail_rows(self, wanted: set[str] | None) -> Iterator[tuple[str, np.ndarray]]:
        for tables in self._tail.tables.values():
            for table in tables:
                yield from _split(table, list(self._tail.names or ()), wanted)

    def _sealed_rows(self, commit: Commit, wanted: set[str] | None) -> Iterator[tuple[str, np.ndarray]]:
        if commit.event_rows and (wanted is None or wanted & set(commit.event_names)):
            codes = read_events(self._telemetry, ("name",), 0, commit.event_rows)
            columns = read_events(self._telemetry, EVENT.names or (), 0, commit.event_rows)
            yield from _split(np.concatenate([codes, columns]), commit.event_names, wanted)


def _once(rows: np.ndarray) -> np.ndarray:
    """Return rows in the order of attempt, rank and offset; of those that are there twice the first."""
    rows = rows[np.lexsort((rows["offset"], rows["rank"], rows["attempt"]))]
    new = [rows[key][1:] != rows[key][:-1] for key in ("attempt", "rank", "offset")]
    return rows[np.r_[True, new[0] | new[1] | new[2]]] if len(rows) else rows


def _split(table: np.ndarray, names: list[str], wanted: set[str] | None) -> Iterator[tuple[str, np.ndarray]]:
    """Yield each metric's rows of a table without the name's column, of all metrics or of those wanted."""
    if wanted is None:
        table = table[:, ~np.isnan(table[0])]  # rows of a file that is not there
    else:
        table = table[:, np.isin(table[0], [code for code, name in enumerate(names) if name in wanted])]
    if not table.shape[1]:
        return
    order = np.argsort(table[0], kind="stable")
    codes, begins = np.unique(table[0][order], return_index=True)
    for code, rows in zip(codes.tolist(), np.split(order, begins[1:]), strict=True):
        yield names[int(code)], table[1:, rows]
