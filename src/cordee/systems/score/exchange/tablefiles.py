"""Tables as files: Parquet, CSV and JSON, wide (a column per metric) or long (a row per value)."""

from __future__ import annotations

import csv
import json
import math
import os
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cordee.core.errors import RunFolderError, UsageError
from cordee.systems.score.exchange.table import ExchangeTable, TablePiece, about

SCHEMA = "cordee.samples/1"
SHAPES = ("wide", "long")


class TableFile(ABC):
    """A file that takes a table's rows piece by piece. `long` files take the metrics one below the other."""

    def __init__(self, path: Path, table: ExchangeTable, shape: str) -> None:
        self.table = table
        self.long = shape == "long"
        self.rows = 0

    @abstractmethod
    def write(self, piece: TablePiece) -> None:
        """Add rows."""

    @abstractmethod
    def close(self) -> None:
        """Finish the file."""


class ParquetFile(TableFile):
    """Times are timestamps in UTC, values float32 with null for missing; units and sources are in the metadata."""

    def __init__(self, path: Path, table: ExchangeTable, shape: str) -> None:
        super().__init__(path, table, shape)
        arrow, parquet = _pyarrow()
        names = arrow.dictionary(arrow.int32(), arrow.string())
        head = [("time", arrow.timestamp("ms", tz="UTC")), ("node", names), ("device", names)]
        if self.long:
            columns = [("metric", names), ("value", arrow.float32()), ("unit", names)]
        else:
            columns = [(metric, arrow.float32()) for metric in table.metrics]
        metadata = {"cordee": json.dumps({"schema": SCHEMA, **about(table)})}
        self._schema = arrow.schema([*head, *columns], metadata=metadata)
        self._arrow = arrow
        self._writer = parquet.ParquetWriter(path, self._schema, compression="zstd")

    def write(self, piece: TablePiece) -> None:
        import numpy as np

        if not self.long:
            values = [self._values(piece.values[:, at]) for at in range(len(self.table.metrics))]
            self._append([*self._head(piece.times, piece.device), *values])
            return
        for at, metric in enumerate(self.table.metrics):
            known = np.isfinite(piece.values[:, at])
            count = int(known.sum())
            columns = [
                *self._head(piece.times[known], piece.device[known]),
                self._names(np.zeros(count, np.int32), [metric]),
                self._values(piece.values[known, at]),
                self._names(np.zeros(count, np.int32), [self.table.units.get(metric, "")]),
            ]
            self._append(columns)

    def close(self) -> None:
        self._writer.close()

    def _append(self, columns: list[Any]) -> None:
        self.rows += len(columns[0])
        if len(columns[0]):
            self._writer.write_table(self._arrow.Table.from_arrays(columns, schema=self._schema))

    def _head(self, times: Any, device: Any) -> list[Any]:
        import numpy as np

        moments = self._arrow.array(np.round(times * 1e3).astype("datetime64[ms]"))
        indices = device.astype(np.int32)
        return [
            moments.cast(self._schema.field("time").type),
            self._names(indices, self.table.nodes),
            self._names(indices, self.table.devices),
        ]

    def _names(self, indices: Any, names: Sequence[str]) -> Any:
        unique = sorted(set(names))
        at = self._arrow.array([unique.index(name) for name in names], self._arrow.int32())
        return self._arrow.DictionaryArray.from_arrays(at.take(self._arrow.array(indices)), unique)

    def _values(self, values: Any) -> Any:
        import numpy as np

        return self._arrow.array(np.ascontiguousarray(values), mask=~np.isfinite(values))


class CsvFile(TableFile):
    """Times are ISO 8601 with Z, missing values empty; the first line names the columns."""

    def __init__(self, path: Path, table: ExchangeTable, shape: str) -> None:
        super().__init__(path, table, shape)
        self._file = path.open("w", newline="")
        self._writer = csv.writer(self._file)
        self._writer.writerow(_columns(table, self.long))

    def write(self, piece: TablePiece) -> None:
        for row in _rows(self.table, piece, self.long):
            self.rows += 1
            self._writer.writerow(["" if value is None else value for value in row])

    def close(self) -> None:
        self._file.close()


class JsonFile(TableFile):
    """One document: what the table is, its columns, and its rows as lists; missing values are null."""

    def __init__(self, path: Path, table: ExchangeTable, shape: str) -> None:
        super().__init__(path, table, shape)
        self._file = path.open("w")
        head = {"schema": SCHEMA, **about(table), "columns": _columns(table, self.long)}
        self._file.write(json.dumps(head)[:-1] + ', "rows": [')

    def write(self, piece: TablePiece) -> None:
        for row in _rows(self.table, piece, self.long):
            self._file.write((",\n" if self.rows else "\n") + json.dumps(row))
            self.rows += 1

    def close(self) -> None:
        self._file.write("\n]}\n")
        self._file.close()


WRITERS: dict[str, type[TableFile]] = {"parquet": ParquetFile, "csv": CsvFile, "json": JsonFile}


def export_table(table: ExchangeTable, kind: str, out: Path, shape: str = "wide") -> int:
    """Write a table to a new file, whole or not at all; return the number of rows.

    Args:
        kind: one of WRITERS.
        shape: one of SHAPES.

    Raises:
        UsageError: `out` is there, or Parquet's library is not installed.
        RunFolderError: the disk refuses.
    """
    if out.exists():
        raise UsageError(
            "there is something of this name already", given=str(out), allowed="a file that is not there yet"
        )
    if kind == "parquet":
        _pyarrow()
    draft = ""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        descriptor, draft = tempfile.mkstemp(prefix=f".{out.name}.", suffix=".partial", dir=out.parent)
        os.close(descriptor)
        file = WRITERS[kind](Path(draft), table, shape)
        for piece in table.pieces():
            file.write(piece)
        file.close()
        os.rename(draft, out)
        return file.rows
    except OSError as error:
        raise RunFolderError(
            f"the table could not be written: {error.strerror or error}", given=str(out), next="choose another place"
        ) from error
    finally:
        if draft and os.path.exists(draft):
            os.unlink(draft)


def _columns(table: ExchangeTable, long: bool) -> list[str]:
    return ["time", "node", "device", *(["metric", "value", "unit"] if long else table.metrics)]


def _rows(table: ExchangeTable, piece: TablePiece, long: bool) -> Iterator[list[Any]]:
    moments = {moment: _iso(moment) for moment in set(piece.times.tolist())}
    units = [table.units.get(metric, "") for metric in table.metrics]
    rows = zip(piece.times.tolist(), piece.device.tolist(), piece.values.tolist(), strict=True)
    for moment, device, values in rows:
        head = [moments[moment], table.nodes[device], table.devices[device]]
        short = [float(f"{value:.7g}") if math.isfinite(value) else None for value in values]
        if not long:
            yield [*head, *short]
            continue
        for metric, value, unit in zip(table.metrics, short, units, strict=True):
            if value is not None:
                yield [*head, metric, value, unit]


def _iso(moment: float) -> str:
    return datetime.fromtimestamp(round(moment, 3), UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise UsageError(
            "Parquet needs pyarrow, which is not installed",
            given="--to parquet",
            allowed="--to csv or --to json without it",
            next="pip install 'cordee[parquet]'",
        ) from error
    return pyarrow, pyarrow.parquet
