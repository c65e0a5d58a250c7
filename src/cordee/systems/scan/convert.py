"""The tensors of a PyTorch checkpoint as safetensors: nothing that its pickle names is looked up, so nothing can run.

The pickle runs on a machine that knows how tensors are described, and puts nothing in the place of everything else.
"""

from __future__ import annotations

import json
import math
import os
import pickle
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from cordee.core.errors import CordeeError
from cordee.machine.foreign_files import regular
from cordee.systems.scan.node.formats import zip_entries
from cordee.systems.scan.node.formats.pickle_machine import Nothing
from cordee.systems.scan.node.source import FileSource, ScanBudget, Source

# PyTorch's storages: what safetensors call the type of their items, and how many bytes one has.
_STORAGES = {
    "DoubleStorage": ("F64", 8), "FloatStorage": ("F32", 4), "HalfStorage": ("F16", 2), "BFloat16Storage": ("BF16", 2),
    "LongStorage": ("I64", 8), "IntStorage": ("I32", 4), "ShortStorage": ("I16", 2), "CharStorage": ("I8", 1),
    "ByteStorage": ("U8", 1), "BoolStorage": ("BOOL", 1),
}  # fmt: skip
_REBUILD = ("_rebuild_tensor", "_rebuild_tensor_v2", "_rebuild_tensor_v3")
_PARAMETER = ("_rebuild_parameter", "_rebuild_parameter_with_state")
_MOST_DEPTH, _MOST_TIMES = 100, 100


class Converted(NamedTuple):
    """What was taken out.

    Attributes:
        path: of the safetensors file.
        tensors: how many.
        size: of the file in bytes.
        left_out: values that are no tensors, by their names.
    """

    path: str
    tensors: int
    size: int
    left_out: list[str]


class _Storage(NamedTuple):
    kind: str
    item: int
    key: str


class _Tensor(NamedTuple):
    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def convert(path: str, target: str) -> Converted:
    """Write the tensors of a checkpoint into a new safetensors file, each under the keys that lead to it, joined by dots.

    Raises:
        CordeeError: it is no checkpoint of PyTorch's format since 1.6, or holds no tensors.
        OSError: a file cannot be read or written; `target` is there already.
    """
    descriptor = regular(path)
    try:
        source = FileSource(descriptor)
        entries = _entries(source, path)
        data = next((name for name in entries if name.endswith("/data.pkl") or name == "data.pkl"), None)
        if data is None:
            raise _no_checkpoint(path, "it has no data.pkl")
        value = _read(entries[data], path)
        tensors: dict[str, _Tensor] = {}
        left_out: list[str] = []
        _collect(value, "", tensors, left_out, 0)
        if not tensors:
            raise _no_checkpoint(path, "it holds no tensors")
        size = _write(Path(target), tensors, entries, data[: -len("data.pkl")], path)
        return Converted(target, len(tensors), size, left_out)
    finally:
        os.close(descriptor)


def _no_checkpoint(path: str, why: str) -> CordeeError:
    return CordeeError(
        f"its tensors cannot be taken out: {why}",
        given=path,
        allowed="a checkpoint that torch.save of PyTorch 1.6 or later wrote",
    )


def _entries(source: Source, path: str) -> dict[str, Source]:
    budget = ScanBudget()
    try:
        return {
            entry.name: zip_entries.content(source, entry, budget)
            for entry in zip_entries.entries(source)
            if entry.named
        }
    except ValueError as error:
        raise _no_checkpoint(path, str(error)) from None


class _Machine(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in (("collections", "OrderedDict"), ("builtins", "dict")):
            return dict
        if module == "torch._utils" and name in _REBUILD:
            return _tensor
        if module == "torch._utils" and name in _PARAMETER:
            return _parameter
        if module == "torch" and name in _STORAGES:
            return _STORAGES[name]
        return type("Nothing", (Nothing,), {})

    def persistent_load(self, pid: Any) -> Any:
        if not (isinstance(pid, tuple) and len(pid) >= 3 and isinstance(pid[1], tuple) and isinstance(pid[2], str)):
            return Nothing()
        return _Storage(pid[1][0], pid[1][1], pid[2])


def _tensor(storage: Any, offset: Any = 0, shape: Any = (), strides: Any = (), *_: Any) -> Any:
    numbers = (offset, *shape, *strides) if isinstance(shape, tuple) and isinstance(strides, tuple) else (None,)
    if not isinstance(storage, _Storage) or not all(isinstance(one, int) and one >= 0 for one in numbers):
        return Nothing()
    return _Tensor(storage, offset, shape, strides)


def _parameter(tensor: Any = None, *_: Any) -> Any:
    return tensor


def _read(source: Source, path: str) -> Any:
    try:
        return _Machine(source.file(), encoding="latin1").load()
    except Exception as error:  # the machine raises whatever its opcodes meet
        raise _no_checkpoint(path, f"its pickle cannot be read ({str(error)[:100]})") from None


def _collect(value: Any, name: str, tensors: dict[str, _Tensor], left_out: list[str], depth: int) -> None:
    items: Iterator[tuple[Any, Any]]
    if isinstance(value, _Tensor):
        tensors[name or "tensor"] = value
        return
    if isinstance(value, dict):
        items = iter(value.items())
    elif isinstance(value, (list, tuple)):
        items = iter(enumerate(value))
    else:
        left_out.append(name)
        return
    if depth > _MOST_DEPTH:
        left_out.append(name)
        return
    for key, inner in items:
        _collect(inner, f"{name}.{key}" if name else str(key), tensors, left_out, depth + 1)


def _write(target: Path, tensors: dict[str, _Tensor], entries: dict[str, Source], prefix: str, path: str) -> int:
    header: dict[str, Any] = {}
    at, whole = 0, sum(entry.size for entry in entries.values())
    for name, tensor in tensors.items():
        size = tensor.storage.item * math.prod(tensor.shape)
        if at + size > _MOST_TIMES * whole:
            raise _no_checkpoint(path, f"the tensor {name} is very much larger than the file")
        header[name] = {"dtype": tensor.storage.kind, "shape": list(tensor.shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    hidden = target.with_name(f".{target.name}.writing")
    try:
        with hidden.open("xb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            for name, tensor in tensors.items():
                _write_tensor(file, name, tensor, entries.get(f"{prefix}data/{tensor.storage.key}"), path)
            file.flush()
            os.fsync(file.fileno())
        os.link(hidden, target)  # never over a file that is there
    finally:
        hidden.unlink(missing_ok=True)
    return 8 + len(text) + at


def _write_tensor(file: BinaryIO, name: str, tensor: _Tensor, storage: Source | None, path: str) -> None:
    item, shape, strides = tensor.storage.item, tensor.shape, tensor.strides
    if 0 in shape:
        return
    last = tensor.offset + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=False))
    if storage is None or len(shape) != len(strides) or (last + 1) * item > storage.size:
        raise _no_checkpoint(path, f"the tensor {name} reaches beyond its storage")
    if strides == _contiguous(shape):
        for _, piece in storage.part(tensor.offset * item, (last + 1 - tensor.offset) * item).chunks():
            file.write(piece)
        return
    flat = np.frombuffer(storage.at(tensor.offset * item, (last + 1 - tensor.offset) * item), dtype=f"V{item}")
    file.write(np.lib.stride_tricks.as_strided(flat, shape, tuple(stride * item for stride in strides)).tobytes())


def _contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))
