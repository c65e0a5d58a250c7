"""A CSV file and the files that it names: one row is one sample."""

from __future__ import annotations

import csv
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from cordee.core.documents.texts import lines_of
from cordee.core.errors import DataError, UsageError
from cordee.systems.data.node.shards.entries import Listing, PackedEntry, Sample
from cordee.systems.data.node.shards.folder import UNREADABLE
from cordee.systems.data.node.shards.groups import in_order
from cordee.systems.data.node.shards.sample_names import by_folder, choose_split, key_and_field
from cordee.systems.data.pack._base import SampleOrigin
from cordee.systems.data.pack.origins.rows import numbered

_PATHS = (
    "path",
    "file",
    "filename",
    "file_name",
    "filepath",
    "file_path",
    "image",
    "audio",
    "image_path",
    "audio_path",
)
_LABELS = ("label", "class", "category", "target")


class TableOrigin(SampleOrigin):
    """Rows of a table: a column of paths (below the table's folder, or absolute), a column of classes, the rest as JSON.

    Rows that name one file are a sample each: `KEY`, `KEY~2`, `KEY~3`.

    Args:
        path: the CSV or TSV file, with a first line that names the columns.
        files: the column of paths; None: the first of the usual names that is there.
        label: the column of classes; None: the usual ones; empty: none.
    """

    def __init__(self, path: str, files: str | None = None, label: str | None = None) -> None:
        self._table = os.path.abspath(path)
        self._folder = os.path.dirname(self._table)
        self.name = os.path.splitext(os.path.basename(path))[0]
        self._files, self._label = files, label
        self._more: list[bytes] = []

    def listing(self) -> Listing:
        """Return the files of all rows, their classes, and what else the table says as `KEY.json`.

        Raises:
            UsageError: there is no such column. DataError: no table, or a row without a path.
            DocumentError: its encoding is not clear.
        """
        found = Listing()
        columns, rows = self._rows()
        files = self._column(columns, self._files, _PATHS, "paths", needed=True)
        label = self._column(columns, self._label, _LABELS, "classes", needed=bool(self._label))
        rest = [column for column in columns if column not in (files, label)]
        listed: list[tuple[PackedEntry, dict[str, str]]] = []
        for number, row in rows:
            if not row.get(files):
                raise DataError(
                    "a row names no file", given=f"{self._table}, row {number}", allowed=f"a path in {files!r}"
                )
            entry = self._entry(row[files], found)
            if entry is not None:
                listed.append((entry, row))
        found.classes, numbers = numbered(row[label] for _, row in listed) if label is not None else ([], {})
        names = _Names(entry for entry, _ in listed)
        samples = []
        for entry, row in listed:
            key, field = names.of(entry)
            fields, entries = [field], [entry]
            if rest:
                text = json.dumps({column: row[column] for column in rest}, ensure_ascii=False).encode()
                fields.append("json" if field != "json" else "row.json")
                entries.append(PackedEntry(b"%b.%b" % (key, fields[-1].encode()), len(text), None, len(self._more)))
                self._more.append(text)
            renamed = entry.name.lower() != key.lower() + b"." + os.fsencode(field)
            of_class = numbers.get(row[label]) if label is not None else None
            samples.append(Sample(key, of_class, tuple(fields), tuple(entries), renamed))
        found.samples = in_order(samples)
        digest = hashlib.sha256(b"\0".join(self._more))
        said = [(os.fsdecode(entry.name), row[label] or "") for entry, row in listed] if label is not None else []
        digest.update(json.dumps(sorted(said)).encode())
        found.fingerprint = digest.hexdigest()
        return found

    def chunks(self, entry: PackedEntry) -> Iterator[bytes]:
        """Yield what the table itself says of a row."""
        yield self._more[entry.offset]

    def _entry(self, given: str, found: Listing) -> PackedEntry | None:
        path = os.path.normpath(os.path.join(self._folder, given))
        name = os.path.relpath(path, self._folder)
        if name.startswith(".."):
            name = path.lstrip("/")
        try:
            about = os.stat(path)
        except OSError as error:
            found.left_out.setdefault(UNREADABLE, []).append(f"{given}: {error.strerror}")
            return None
        key = name.encode("utf-8", "surrogateescape")
        return PackedEntry(key, about.st_size, os.fsencode(path), 0, about.st_mtime_ns)

    def _rows(self) -> tuple[Sequence[str], Iterator[tuple[int, dict[str, str]]]]:
        delimiter = "\t" if self._table.lower().endswith(".tsv") else ","
        reader = csv.DictReader(lines_of(Path(self._table)), delimiter=delimiter)
        try:
            columns = list(reader.fieldnames or [])
        except (OSError, csv.Error) as error:
            why = getattr(error, "strerror", None) or error
            raise DataError(f"the table cannot be read: {why}", given=self._table) from None

        def rows() -> Iterator[tuple[int, dict[str, str]]]:
            try:
                for number, row in enumerate(reader, 2):
                    if None in row or None in row.values():
                        raise DataError(
                            "a row has another number of cells than the first line",
                            given=f"{self._table}, row {number}",
                            allowed=f"{len(columns)} cells",
                        )
                    yield number, row
            except csv.Error as error:
                given = f"{self._table}, line {reader.line_num + 1}"
                raise DataError(f"the table cannot be read: {error}", given=given) from None

        return columns, rows()

    def _column(
        self, columns: Sequence[str], given: str | None, usual: Sequence[str], what: str, *, needed: bool
    ) -> Any:
        if given is not None and given not in columns:
            if given == "":
                return None
            raise UsageError(f"the table has no such column of {what}", given=given, allowed=list(columns))
        if given is not None:
            return given
        lower = {column.lower(): column for column in columns}
        found = next((lower[name] for name in usual if name in lower), None)
        if found is None and needed:
            raise UsageError(
                f"which column holds {what} is not clear",
                given=self._table,
                allowed=list(columns),
                next="name it: --files COLUMN",
            )
        return found


class _Names:
    """Keys of rows: the name of each row's file; where others have the same key it gets `~2`, `~3`, in the rows' order."""

    def __init__(self, entries: Iterable[PackedEntry]) -> None:
        files = {entry.name: entry for entry in entries}
        self._at_first_dot = choose_split(by_folder(files.values())) == "first"
        self._keys = {key_and_field(name, self._at_first_dot)[0] for name in files}
        self._taken: dict[bytes, int] = {}

    def of(self, entry: PackedEntry) -> tuple[bytes, str]:
        """Return the key of the next row that names a file, and the file's field."""
        key, field = key_and_field(entry.name, self._at_first_dot)
        free, number = key, self._taken.get(key, 0)
        while number and free in self._keys:
            number += 1
            free = b"%b~%d" % (key, number)
        self._taken[key] = max(1, number)
        return free, field


def open_origin(address: str, options: dict[str, Any]) -> TableOrigin:
    """Return the origin of a table; options `files_column`, `label_column`."""
    return TableOrigin(address, options.get("files_column"), options.get("label_column"))
