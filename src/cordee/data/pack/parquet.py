"""Parquet as origin: one row is one sample, as Hugging Face's data sets keep pictures and sound.

A column of bytes, or of `{bytes, path}`, becomes a field of its own; text becomes `COLUMN.txt`; a column of integers that is
called like a label is the class; the rest of a row becomes one `json`.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from typing import Any

from cordee.data.pack._base import Entry, Listing, Origin
from cordee.errors import CorruptDataError, UsageError

_LABELS = ("label", "labels", "class", "fine_label", "category", "target", "cls")
_MAGIC = (
    (b"\xff\xd8\xff", "jpg"),
    (b"\x89PNG", "png"),
    (b"GIF8", "gif"),
    (b"BM", "bmp"),
    (b"fLaC", "flac"),
    (b"OggS", "ogg"),
    (b"ID3", "mp3"),
    (b"\x93NUMPY", "npy"),
)
_MOST_COLUMNS = 1 << 12


class ParquetOrigin(Origin):
    """Rows of one Parquet file, or of all in a folder, in their order.

    Args:
        path: the file, or the folder that holds nothing else.
        label: the column of classes; None: the usual ones; empty: none.
    """

    threads = True
    sequential = True

    def __init__(self, path: str, label: str | None = None) -> None:
        self._paths = [os.path.abspath(path)]
        if os.path.isdir(path):
            self._paths = sorted(os.path.join(os.path.abspath(path), name) for name in os.listdir(path))
        self.name = os.path.splitext(os.path.basename(os.path.abspath(path)))[0]
        self._label_column = label
        self._own = threading.local()
        self._groups: list[tuple[int, int, int, int]] = []  # first row, rows, file, row group in it
        self._stamps = [self._look(path) for path in self._paths]

    def listing(self) -> Listing:
        """Return every cell that becomes a field; reads every row group once to learn how long they are.

        Raises:
            CorruptDataError: a file is no Parquet. UsageError: there is no such column, or pyarrow is missing.
        """
        found = Listing(fingerprint=repr([self._label_column, *self._stamps]))
        labels: dict[bytes, int] = {}
        first = 0
        for number, path in enumerate(self._paths):
            file = self._open(path)
            schema = file.schema_arrow
            columns = _Columns(schema, self._label_column, path)
            if number == 0:
                self._columns = columns
                found.classes = columns.classes
            elif columns.kinds != self._columns.kinds:
                raise UsageError("the files have other columns", given=path, allowed=f"those of {self._paths[0]}")
            for group in range(file.num_row_groups):
                table = file.read_row_group(group, use_threads=False)
                self._groups.append((first, table.num_rows, number, group))
                for row, cells in enumerate(self._rows(table), first):
                    for column, (field, data) in enumerate(cells):
                        name = b"%09d.%b" % (row, field.encode())
                        found.entries.append(Entry(name, len(data), None, row * _MOST_COLUMNS + column))
                    label = columns.label_of(table, row - first)
                    if label is not None:
                        labels[b"%09d.%b" % (row, cells[0][0].encode())] = label
                first += table.num_rows
        found.labels = labels
        return found

    def chunks(self, entry: Entry) -> Iterator[bytes]:
        """Yield one cell; the row group that holds it stays in memory until another one is needed."""
        row, column = divmod(entry.offset, _MOST_COLUMNS)
        yield self._cells(row)[column][1]

    def check(self) -> None:
        if [self._look(path) for path in self._paths] != self._stamps:
            raise CorruptDataError("the files have changed while they were packed", given=self._paths[0])

    def _cells(self, row: int) -> list[tuple[str, bytes]]:
        own = self._own
        if not (getattr(own, "first", 0) <= row < getattr(own, "end", 0)):
            first, rows, number, group = next(one for one in self._groups if one[0] <= row < one[0] + one[1])
            table = self._open(self._paths[number]).read_row_group(group, use_threads=False)
            own.first, own.end, own.cells = first, first + rows, list(self._rows(table))
        found: list[tuple[str, bytes]] = own.cells[row - own.first]
        return found

    def _rows(self, table: Any) -> Iterator[list[tuple[str, bytes]]]:
        """Yield the fields of each row: (name, bytes)."""
        kinds = self._columns.kinds
        values = {name: table.column(name).to_pylist() for name in kinds}
        single = sum(kind == "bytes" for kind in kinds.values()) == 1
        rest = [name for name, kind in kinds.items() if kind == "json"]
        for row in range(table.num_rows):
            cells = []
            for name, kind in kinds.items():
                value = values[name][row]
                if value is None:
                    continue
                if kind == "bytes":
                    data, path = (value.get("bytes"), value.get("path")) if isinstance(value, dict) else (value, None)
                    if data is not None:
                        ending = _ending(data, path)
                        cells.append((ending if single and ending else f"{name}.{ending}" if ending else name, data))
                elif kind == "text":
                    cells.append((f"{name}.txt", value.encode()))
            if rest or not cells:
                said = {name: values[name][row] for name in rest}
                cells.append(("json", json.dumps(said, default=str, ensure_ascii=False).encode()))
            yield cells

    def _open(self, path: str) -> Any:
        try:
            import pyarrow
            import pyarrow.parquet
        except ImportError:
            raise UsageError("packing Parquet needs pyarrow", next="pip install 'cordee[parquet]'") from None
        try:
            return pyarrow.parquet.ParquetFile(path)
        except pyarrow.ArrowInvalid as error:
            raise CorruptDataError(
                f"this is no whole Parquet file: {error}",
                given=path,
                next="get it again: it was cut off, or is no Parquet",
            ) from None

    def _look(self, path: str) -> tuple[int, int]:
        about = os.stat(path)
        return about.st_size, about.st_mtime_ns


class _Columns:
    """What becomes of each column: bytes, text or json; which one is the label."""

    def __init__(self, schema: Any, label: str | None, path: str) -> None:
        import pyarrow.types as types

        if label and label not in schema.names:
            raise UsageError("the table has no such column of classes", given=label, allowed=list(schema.names))
        wanted = [label] if label else [] if label == "" else list(_LABELS)
        self._label = next(
            (name for name in schema.names if name in wanted and types.is_integer(schema.field(name).type)), None
        )
        if label and self._label is None:
            raise UsageError("the column of classes holds no integers", given=label, allowed=f"integers, in {path}")
        self.kinds: dict[str, str] = {}
        for name in schema.names:
            kind = schema.field(name).type
            names = [kind.field(number).name for number in range(kind.num_fields)] if types.is_struct(kind) else []
            if name == self._label:
                continue
            if types.is_binary(kind) or types.is_large_binary(kind) or "bytes" in names:
                self.kinds[name] = "bytes"
            elif types.is_string(kind) or types.is_large_string(kind):
                self.kinds[name] = "text"
            else:
                self.kinds[name] = "json"
        self.classes = self._names(schema)

    def label_of(self, table: Any, row: int) -> int | None:
        """Return the class of a row; Hugging Face writes -1 where it is not known."""
        if self._label is None:
            return None
        value = table.column(self._label)[row].as_py()
        return None if value is None or value < 0 else int(value)

    def _names(self, schema: Any) -> list[str]:
        """Return the names of the classes, where Hugging Face's own description has them."""
        if self._label is None:
            return []
        try:
            about = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
            names: list[str] = about["info"]["features"][self._label]["names"]
        except (KeyError, TypeError, ValueError):
            return []
        return names


def _ending(data: bytes, path: str | None) -> str:
    """Return how a file with these bytes would end; empty where nobody knows."""
    if path and "." in os.path.basename(path):
        return path.rpartition(".")[2].lower()
    if data[:4] == b"RIFF":
        return {b"WEBP": "webp", b"WAVE": "wav"}.get(data[8:12], "")
    return next((ending for magic, ending in _MAGIC if data.startswith(magic)), "")


def open_origin(address: str, options: dict[str, Any]) -> ParquetOrigin:
    """Return the origin of Parquet files; option `label_column`."""
    return ParquetOrigin(address, options.get("label_column"))
