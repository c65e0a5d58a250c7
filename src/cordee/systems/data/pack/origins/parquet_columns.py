"""What becomes of each column of a Parquet table: fields of bytes, texts, JSON, or the class."""

from __future__ import annotations

import datetime
import decimal
import json
import math
import os
import re
import uuid
from collections.abc import Iterator
from typing import Any

from cordee.core.errors import DataError, UsageError
from cordee.machine.foreign_files import parse_json
from cordee.systems.data.pack.origins.rows import fields_of

_LABELS = ("label", "labels", "class", "fine_label", "category", "target", "cls")
# Texts under these names are classes; a text called target is as often what a model should write.
_TEXT_LABELS = ("label", "class", "fine_label", "category", "cls")
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
_AS_TEXT = (datetime.date, datetime.time, datetime.timedelta, decimal.Decimal, uuid.UUID)
_JSON = "json"


class ParquetColumns:
    """The columns of one schema.

    Args:
        label: the column of classes; None: the usual ones; empty: none.
        path: of the file, for messages.

    Attributes:
        kinds: by column: `bytes`, `list` (of bytes), `text` or `json`.
        label: the column of classes, or None; label_is_text: they are texts.
        classes: the names of integer classes, where Hugging Face's description has them.

    Raises:
        UsageError: there is no such column of classes, or a column holds bytes where no field could.
    """

    def __init__(self, schema: Any, label: str | None, path: str) -> None:
        if label and label not in schema.names:
            raise UsageError("the table has no such column of classes", given=label, allowed=list(schema.names))
        self._path = path
        types = {name: _storage(schema.field(name).type) for name in schema.names}
        self.label = _label_among(types, label)
        if label and self.label is None:
            raise UsageError(
                "the column of classes holds no integers and no texts", given=label, allowed=f"such a column, in {path}"
            )
        self.label_is_text = self.label is not None and _is_text(types[self.label])
        self.kinds = {name: _kind(name, kind, path) for name, kind in types.items() if name != self.label}
        self.classes = _names_of_classes(schema, self.label)
        self._fields = fields_of(self.kinds)
        self._single = sum(kind == "bytes" for kind in self.kinds.values()) == 1 and "list" not in self.kinds.values()
        self._rest = [name for name, kind in self.kinds.items() if kind == _JSON]

    def labels_of(self, table: Any) -> list[Any]:
        """Return the class of each row, as number or text; empty where there are none. -1 is Hugging Face's unknown."""
        if self.label is None:
            return []
        values = table.column(self.label).to_pylist()
        if self.label_is_text:
            return [value or None for value in values]
        return [None if value is None or value < 0 else int(value) for value in values]

    def paths_alone(self, table: Any) -> Iterator[tuple[int, str]]:
        """Yield (row, path) of what has a path where its bytes belong, which nobody can pack: they lie elsewhere."""
        for name, kind in self.kinds.items():
            if kind not in ("bytes", "list"):
                continue
            for row, value in enumerate(_plain_column(table.column(name)).to_pylist()):
                for one in value if isinstance(value, list) else [value]:
                    if isinstance(one, dict) and one["bytes"] is None and one.get("path"):
                        yield row, str(one["path"])

    def rows(self, table: Any) -> Iterator[list[tuple[str, bytes]]]:
        """Yield the fields of each row: (name, bytes)."""
        values = {name: _plain_column(table.column(name)).to_pylist() for name in self.kinds}
        for row in range(table.num_rows):
            cells: dict[str, bytes] = {}
            said: dict[str, Any] = {name: values[name][row] for name in self._rest}
            for name, kind in self.kinds.items():
                value = values[name][row]
                if value is None or kind == _JSON:
                    continue
                field = self._fields[name]
                if kind == "text":
                    _add(cells, f"{field}.txt", value.encode())
                elif kind == "bytes":
                    self._put(cells, said, name, field, value)
                else:
                    for at, one in enumerate(value):
                        if one is not None:
                            self._put(cells, said, f"{name}.{at}", f"{field}.{at}", one)
            if said or not cells:
                _add(cells, _JSON, self._text(said))
            yield list(cells.items())

    def _put(self, cells: dict[str, bytes], said: dict[str, Any], name: str, field: str, value: Any) -> None:
        """Add bytes as a field; what else stands beside them is said in the row's JSON."""
        data, path = value, None
        if isinstance(value, dict):
            data, path = value["bytes"], value.get("path")
            beside = {key: one for key, one in value.items() if key != "bytes" and (key != "path" or data is None)}
            if any(one is not None for one in beside.values()):
                said[name] = beside
        if data is None:
            return
        ending = _ending(data, path)
        alone = self._single and ending and not (ending == _JSON and said)
        _add(cells, ending if alone else f"{field}.{ending}" if ending else field, data)

    def _text(self, said: dict[str, Any]) -> bytes:
        try:
            try:
                text = json.dumps(said, default=_as_text, ensure_ascii=False, allow_nan=False)
            except ValueError:  # JSON has no such numbers
                text = json.dumps(_without_nan(said), default=_as_text, ensure_ascii=False, allow_nan=False)
        except TypeError as error:
            raise DataError(
                f"a row cannot be written as JSON: {error}",
                given=f"{self._path}: columns {', '.join(said)}",
                allowed="numbers, texts, times, lists and structs of these",
                next="write these columns as one of them, or leave them out of the table",
            ) from None
        return text.encode("utf-8", "surrogatepass")


def _add(cells: dict[str, bytes], field: str, data: bytes) -> None:
    """Add a field; one whose name is taken gets another."""
    free, number = field, 1
    while free in cells:
        number += 1
        free = f"{field}~{number}"
    cells[free] = data


def _label_among(types: dict[str, Any], label: str | None) -> str | None:
    import pyarrow.types

    if label == "":
        return None
    for name, kind in types.items():
        if name == label if label else name in _LABELS:
            as_text = _is_text(kind) and (label or name in _TEXT_LABELS)
            if pyarrow.types.is_integer(kind) or as_text:
                return name
    return None


def _kind(name: str, kind: Any, path: str) -> str:
    """Return what becomes of a column.

    Raises:
        UsageError: it holds bytes where no field could.
    """
    if _is_field(kind):
        return "bytes"
    if _is_list(kind) and _is_field(_storage(kind.value_type)):
        return "list"
    if _holds_bytes(kind):
        raise UsageError(
            "a column holds bytes in a shape that no sample has",
            given=f"{path}: column {name} of {kind}",
            allowed="columns of bytes, of structs with one member `bytes`, or of lists of these",
            next="write the bytes into columns of their own, or leave the column out: "
            f"pyarrow.parquet.write_table(table.drop_columns([{name!r}]), ...)",
        )
    return "text" if _is_text(kind, dictionaries=False) else _JSON


def _storage(kind: Any) -> Any:
    """Return the type of the bytes or numbers that an extension or a dictionary of bytes stands for."""
    import pyarrow

    if isinstance(kind, pyarrow.BaseExtensionType):
        return _storage(kind.storage_type)
    if pyarrow.types.is_dictionary(kind) and _is_bytes(kind.value_type):
        return kind.value_type
    return kind


def _plain_column(column: Any) -> Any:
    """Return a column without its extension type, whose values could be any Python object."""
    import pyarrow

    if isinstance(column.type, pyarrow.BaseExtensionType):
        return pyarrow.chunked_array([chunk.storage for chunk in column.chunks], type=column.type.storage_type)
    return column


def _is_bytes(kind: Any) -> bool:
    import pyarrow.types as types

    return any(
        is_kind(kind)
        for is_kind in (types.is_binary, types.is_large_binary, types.is_fixed_size_binary, types.is_binary_view)
    )


def _is_text(kind: Any, dictionaries: bool = True) -> bool:
    import pyarrow.types as types

    if types.is_dictionary(kind):
        return dictionaries and _is_text(kind.value_type)
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _is_list(kind: Any) -> bool:
    import pyarrow.types as types

    lists = (types.is_list, types.is_large_list, types.is_fixed_size_list, types.is_list_view, types.is_large_list_view)
    return any(is_kind(kind) for is_kind in lists)


def _is_field(kind: Any) -> bool:
    """Say whether a value is the bytes of a field: bytes, or a struct with one member `bytes` as Hugging Face has it."""
    import pyarrow.types

    if not pyarrow.types.is_struct(kind):
        return _is_bytes(kind)
    members = {kind.field(number).name: _storage(kind.field(number).type) for number in range(kind.num_fields)}
    others = [member for name, member in members.items() if name != "bytes"]
    return _is_bytes(members.get("bytes", kind)) and not any(map(_holds_bytes, others))


def _holds_bytes(kind: Any) -> bool:
    import pyarrow.types

    kind = _storage(kind)
    if _is_bytes(kind):
        return True
    if pyarrow.types.is_dictionary(kind) or pyarrow.types.is_run_end_encoded(kind):
        return _holds_bytes(kind.value_type)
    return any(_holds_bytes(kind.field(number).type) for number in range(kind.num_fields))


def _names_of_classes(schema: Any, label: str | None) -> list[str]:
    """Return the names of the classes, where Hugging Face's own description has them."""
    try:
        about = parse_json((schema.metadata or {}).get(b"huggingface", b"{}"))
        names: list[str] = about["info"]["features"][label]["names"]
    except (KeyError, TypeError, ValueError):
        return []
    return names


def _as_text(value: Any) -> Any:
    if isinstance(value, _AS_TEXT):
        return str(value)
    if hasattr(value, "item"):  # a number of NumPy's
        return value.item()
    raise TypeError(f"{type(value).__name__} has no place in JSON")


def _without_nan(value: Any) -> Any:
    """Return a value with the numbers that JSON has not as texts: NaN, Infinity, -Infinity."""
    if isinstance(value, dict):
        return {key: _without_nan(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_nan(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def _ending(data: bytes, path: str | None) -> str:
    """Return how a file with these bytes would end; empty where nobody knows."""
    if path and (found := re.search(r"\.([\w-]+)$", os.path.basename(path))):
        return found[1].lower()
    if data[:4] == b"RIFF":
        return {b"WEBP": "webp", b"WAVE": "wav"}.get(data[8:12], "")
    return next((ending for magic, ending in _MAGIC if data.startswith(magic)), "")
