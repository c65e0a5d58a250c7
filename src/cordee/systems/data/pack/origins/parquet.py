"""Parquet and Arrow as origin: one row is one sample, as Hugging Face's data sets keep pictures and sound.

A column of bytes, or of `{bytes, path}`, becomes a field of its own, a list of these one for each element; text becomes
`COLUMN.txt`; a column of integers or texts that is called like a label is the class; the rest of a row becomes one `json`.
Bytes anywhere else have no place in a sample, and their column is refused by name.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from cordee.core.errors import CorruptDataError, UsageError
from cordee.systems.data.node.shards.entries import Listing, PackedEntry, Sample
from cordee.systems.data.node.shards.groups import in_order
from cordee.systems.data.pack._base import SampleOrigin
from cordee.systems.data.pack.origins.parquet_columns import ParquetColumns
from cordee.systems.data.pack.origins.rows import numbered

ARROW_ENDINGS = (".arrow", ".feather")
_MOST_CELLS = 1 << 20


class _Group(NamedTuple):
    """Rows that are read together: the first one's number, how many, of which file, which group in it."""

    first: int
    rows: int
    file: int
    group: int


class ParquetOrigin(SampleOrigin):
    """Rows of Parquet or Arrow files, in their order.

    Args:
        paths: of the files, which have the same columns.
        name: of the data set.
        label: the column of classes; None: the usual ones; empty: none.
    """

    threads = True
    sequential = True

    def __init__(self, paths: Sequence[str], name: str, label: str | None = None) -> None:
        self._paths = [os.path.abspath(path) for path in paths]
        self.name = name
        self._label_column = label
        self._own = threading.local()
        self._groups: list[_Group] = []
        self._stamps = [self._look(path) for path in self._paths]

    def listing(self) -> Listing:
        """Return every cell that becomes a field; reads every row group once to learn how long they are.

        Raises:
            CorruptDataError: a file is not whole. UsageError: a column is missing or cannot be packed, or pyarrow is missing.
        """
        found: list[Sample] = []
        said: list[Any] = []
        alone: list[str] = []
        for number, path in enumerate(self._paths):
            file = self._open(path)
            columns = ParquetColumns(file.schema_arrow, self._label_column, path)
            if number == 0:
                self._columns = columns
            elif columns.kinds != self._columns.kinds or columns.label != self._columns.label:
                raise UsageError(
                    "the files have other columns",
                    given=path,
                    allowed=f"those of {self._paths[0]}",
                    next="pack those with the same columns: --include PATTERN",
                )
            for group in range(file.num_row_groups):
                table = file.read_row_group(group, use_threads=False)
                self._groups.append(_Group(len(found), table.num_rows, number, group))
                said += self._columns.labels_of(table)
                alone += (f"row {len(found) + row}: {name}" for row, name in self._columns.paths_alone(table))
                for cells in self._columns.rows(table):
                    found.append(_sample(len(found), cells))
        classes, numbers = numbered(said) if self._columns.label_is_text else (self._columns.classes, None)
        rows = [
            row._replace(label=numbers.get(label) if numbers is not None else label)
            for row, label in zip(found, said or [None] * len(found), strict=True)
        ]
        left_out = {"a path without bytes": alone} if alone else {}
        fingerprint = repr([self._label_column, *self._stamps])
        return Listing(samples=in_order(rows), classes=classes, left_out=left_out, fingerprint=fingerprint)

    def chunks(self, entry: PackedEntry) -> Iterator[bytes]:
        """Yield one cell; the row group that holds it stays in memory until another one is needed."""
        row, cell = divmod(entry.offset, _MOST_CELLS)
        yield self._cells(row)[cell][1]

    def check(self) -> None:
        if [self._look(path) for path in self._paths] != self._stamps:
            raise CorruptDataError("the files have changed while they were packed", given=self._paths[0])

    def _cells(self, row: int) -> list[tuple[str, bytes]]:
        own = self._own
        if not (getattr(own, "first", 0) <= row < getattr(own, "end", 0)):
            at = next(one for one in self._groups if one.first <= row < one.first + one.rows)
            table = self._open(self._paths[at.file]).read_row_group(at.group, use_threads=False)
            own.first, own.end, own.cells = at.first, at.first + at.rows, list(self._columns.rows(table))
        found: list[tuple[str, bytes]] = own.cells[row - own.first]
        return found

    def _open(self, path: str) -> Any:
        try:
            import pyarrow
            import pyarrow.parquet
        except ImportError:
            raise UsageError("packing Parquet needs pyarrow", next="pip install 'cordee[parquet]'") from None
        kind = "Arrow" if path.lower().endswith(ARROW_ENDINGS) else "Parquet"
        try:
            return _ArrowFile(path) if kind == "Arrow" else pyarrow.parquet.ParquetFile(path)
        except pyarrow.ArrowInvalid as error:
            raise CorruptDataError(
                f"this is no whole {kind} file: {error}",
                given=path,
                next=f"get it again: it was cut off, or is no {kind}",
            ) from None

    def _look(self, path: str) -> tuple[int, int]:
        about = os.stat(path)
        return about.st_size, about.st_mtime_ns


class _ArrowFile:
    """An Arrow file, or a stream as Hugging Face's `save_to_disk` writes it, with the methods of a Parquet file."""

    def __init__(self, path: str) -> None:
        import pyarrow

        mapped = pyarrow.memory_map(path)
        is_file = mapped.read(6) == b"ARROW1"
        mapped.seek(0)
        if is_file:
            reader = pyarrow.ipc.open_file(mapped)
            self.num_row_groups, self._batch = reader.num_record_batches, reader.get_batch
        else:
            reader = pyarrow.ipc.open_stream(mapped)
            batches = list(reader)
            self.num_row_groups, self._batch = len(batches), batches.__getitem__
        self.schema_arrow = reader.schema

    def read_row_group(self, group: int, use_threads: bool = False) -> Any:
        """Return one batch of rows as a table."""
        import pyarrow

        return pyarrow.Table.from_batches([self._batch(group)])


def _sample(row: int, cells: list[tuple[str, bytes]]) -> Sample:
    key = b"%09d" % row
    fields = tuple(field for field, _ in cells)
    entries = tuple(
        PackedEntry(key + b"." + field.encode(), len(data), None, row * _MOST_CELLS + cell)
        for cell, (field, data) in enumerate(cells)
    )
    return Sample(key, None, fields, entries, False)


def open_origin(address: str, options: dict[str, Any]) -> ParquetOrigin:
    """Return the origin of a Parquet or Arrow file; option `label_column`."""
    name = os.path.splitext(os.path.basename(address))[0]
    return ParquetOrigin([address], name, options.get("label_column"))
