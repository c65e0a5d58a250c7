"""Tensors of a training under the names that a server's model has: a table says which is which, and nothing is executed.

The table is `weights.toml` beside config.json:

    [[tensors]]
    from = "blocks.{n}.qkv.weight"      # {n} stands for a number
    to = "transformer.h.{n}.attn.c_attn.weight"
    transpose = true                    # a matrix whose rows are the other's columns

Format of the files: https://huggingface.co/docs/safetensors.
"""

from __future__ import annotations

import json
import os
import re
import struct
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import BeforeValidator, Field

from cordee.core.documents.faults import ValuePlace, validated
from cordee.core.documents.fields import Document
from cordee.core.documents.files import read_text, toml_values
from cordee.core.documents.toml_lines import Keys, find_line
from cordee.core.errors import CordeeError, UsageError
from cordee.core.words import did_you_mean
from cordee.machine.foreign_files import parse_json

TABLE = "weights.toml"
_LARGEST_HEADER_BYTES = 100 << 20
_BYTES = {
    "F64": 8, "I64": 8, "U64": 8, "F32": 4, "I32": 4, "U32": 4, "F16": 2, "BF16": 2, "I16": 2, "U16": 2,
    "I8": 1, "U8": 1, "BOOL": 1, "F8_E4M3": 1, "F8_E5M2": 1,
}  # fmt: skip


class NamedTensor(Document):
    """`[[tensors]]`: one tensor, or one of each layer."""

    source: str = Field(alias="from")
    """Its name in the training; `{n}` stands for a number."""
    to: str
    """Its name in the model that is served."""
    transpose: bool = False
    """Whether it is a matrix that lies the other way there."""


def _rows(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


class TensorTable(Document):
    """`weights.toml`."""

    tensors: Annotated[tuple[NamedTensor, ...], BeforeValidator(_rows)]
    """All tensors of the training."""


def read_table(path: Path) -> tuple[NamedTensor, ...]:
    """Return the rows of a table of names.

    Raises:
        DocumentError: it cannot be read, or is wrong.
    """
    text = read_text(path, "a table of tensors")

    def place(keys: Keys) -> ValuePlace:
        return ValuePlace(str(path), find_line(text, keys) or 1)

    return validated(TensorTable, toml_values(text, str(path)), place).tensors


def rename(folder: Path, table: tuple[NamedTensor, ...]) -> int:
    """Give the tensors of a folder's safetensors files the names of a table; return how many there are.

    Raises:
        UsageError: a tensor is in no row, or two would have one name.
        CordeeError: a file is no safetensors file.
    """
    files = sorted(folder.glob("*.safetensors"))
    where: dict[str, str] = {}
    total = 0
    for file in files:
        names = _rewritten(file, table)
        for name in names:
            if name in where:
                raise UsageError("two tensors would have one name", given=name, next=f"correct {TABLE}")
        where.update(dict.fromkeys(names, file.name))
        total += file.stat().st_size
    index = folder / "model.safetensors.index.json"
    if index.exists():
        index.write_text(json.dumps({"metadata": {"total_size": total}, "weight_map": where}, indent=1))
    return len(where)


def _rewritten(file: Path, table: tuple[NamedTensor, ...]) -> list[str]:
    """Write one file anew; return the names in it."""
    header, begin = read_header(file)
    data = np.memmap(file, np.uint8, "r")
    renamed: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    parts = []
    at = 0
    for name, about in header.items():
        row, new = _row_of(name, table)
        first, last = about["data_offsets"]
        shape, raw = list(about["shape"]), data[begin + first : begin + last]
        if row.transpose:
            if len(shape) != 2 or about["dtype"] not in _BYTES:
                raise UsageError(f"{name} is no matrix, so it has no other side", given=shape, next=f"correct {TABLE}")
            kind = np.dtype((np.void, _BYTES[about["dtype"]]))
            raw = np.ascontiguousarray(raw.view(kind).reshape(shape).T).view(np.uint8).reshape(-1)
            shape.reverse()
        renamed[new] = {"dtype": about["dtype"], "shape": shape, "data_offsets": [at, at + last - first]}
        at += last - first
        parts.append(raw)
    text = json.dumps(renamed, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    new_file = file.with_suffix(".new")
    with new_file.open("wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for part in parts:
            out.write(part.data)
        out.flush()
        os.fsync(out.fileno())
    del data
    new_file.replace(file)
    return [name for name in renamed if name != "__metadata__"]


def read_header(file: Path) -> tuple[dict[str, Any], int]:
    """Return what a safetensors file says of its tensors, and where their bytes begin.

    Raises:
        CordeeError: it is none.
    """
    try:
        with file.open("rb") as opened:
            (length,) = struct.unpack("<Q", opened.read(8))
            if length > _LARGEST_HEADER_BYTES:
                raise ValueError("its header is too long")
            header = parse_json(opened.read(length))
        return {name: about for name, about in header.items() if name != "__metadata__"}, 8 + length
    except (OSError, ValueError, struct.error, AttributeError) as error:
        raise CordeeError(f"it is no safetensors file: {error}", given=str(file)) from error


def _row_of(name: str, table: tuple[NamedTensor, ...]) -> tuple[NamedTensor, str]:
    for row in table:
        parts = row.source.split("{n}")
        match = re.fullmatch(r"(\d+)".join(re.escape(part) for part in parts), name)
        if match and len(set(match.groups())) <= 1:
            return row, row.to.replace("{n}", match[1] if match.groups() else "")
    raise UsageError(
        f"{TABLE} has no row for the tensor {name}",
        given=name,
        next=did_you_mean(name, [row.source for row in table], 'add [[tensors]] with from = "NAME" and to = "NAME"'),
    )
