"""Weights of a checkpoint as safetensors: whole tensors, in files of a bounded size, written side by side.

Format: https://huggingface.co/docs/safetensors: 8 bytes with the header's length, the header in JSON, the tensors.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import struct
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from cordee.core.errors import CheckpointError, UsageError
from cordee.systems.checkpoints.node.sums import verify

_MODEL = "model."
_NAMES = {
    "float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "int64": "I64", "int32": "I32",
    "int16": "I16", "int8": "I8", "uint8": "U8", "bool": "BOOL", "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2",
}  # fmt: skip


def export(checkpoint: str, folder: str, dtype: str | None, most: int, workers: int) -> dict[str, Any]:
    """Write the model's tensors of a checkpoint into a new folder; it is there when all of it is.

    Args:
        checkpoint: a folder that `cordee.checkpointer`, or PyTorch's distributed checkpoint, wrote.
        dtype: what floating-point tensors become, None: what they are.
        most: bytes of one file, though one tensor is never divided.
        workers: files written at once, each of which is in memory.

    Returns:
        `files`, `tensors`, `bytes`, `left_out` (names of what is no tensor of the model).

    Raises:
        UsageError: `folder` is there already.
        CheckpointError: it is damaged, holds no tensors, or cannot be written.
    """
    if os.path.lexists(folder):
        raise UsageError("there is something already", given=folder, next="name another folder")
    try:
        import torch
    except ImportError:
        raise CheckpointError("PyTorch is needed to read it", next="run it with the training's Python") from None
    if os.path.exists(os.path.join(checkpoint, "cordee.json")):
        try:
            verify(checkpoint, 0, 1)
        except (OSError, ValueError) as error:
            raise CheckpointError(f"the checkpoint is damaged: {error}", given=checkpoint) from error
    kinds, left_out = _tensors(checkpoint, torch)
    wanted = {name: _wanted(kind.properties.dtype, dtype, torch) for name, kind in kinds.items()}
    sizes = {name: kind.size.numel() * wanted[name].itemsize for name, kind in kinds.items()}
    groups = _grouped(sizes, most)
    partial = f"{os.path.abspath(folder)}.tmp-{secrets.token_hex(4)}"
    os.makedirs(partial)
    try:
        files = [_file_name(number, len(groups)) for number in range(len(groups))]

        def write(number: int) -> int:
            names = groups[number]
            state = {name: torch.empty(kinds[name].size, dtype=kinds[name].properties.dtype) for name in names}
            _load(state, checkpoint)
            return _write(os.path.join(partial, files[number]), state, wanted, torch)

        with ThreadPoolExecutor(workers) as pool:
            total = sum(pool.map(write, range(len(groups))))
        if len(groups) > 1:
            _write_index(partial, files, groups, sum(sizes.values()))
        os.rename(partial, folder)
    except OSError as error:
        raise CheckpointError(
            f"{folder} cannot be written: {error.strerror}", given=folder, next="make room"
        ) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return {"path": folder, "files": files, "tensors": len(kinds), "bytes": total, "left_out": left_out}


def _tensors(checkpoint: str, torch: Any) -> tuple[dict[str, Any], list[str]]:
    """Return the tensors that a checkpoint describes, by their names in it, and what else it has of the model."""
    from torch.distributed.checkpoint.metadata import TensorStorageMetadata

    from cordee.systems.checkpoints.node.dcp_reader import read_metadata

    try:
        with open(os.path.join(checkpoint, ".metadata"), "rb") as file:
            described = read_metadata(file).state_dict_metadata
    except OSError:
        text = "it is none of PyTorch's distributed checkpoints"
        raise CheckpointError(text, given=checkpoint, next="`cordee scan --convert` reads torch.save's files") from None
    except Exception as error:
        raise CheckpointError(f"its .metadata cannot be read: {error}", given=checkpoint) from error
    model = {name: kind for name, kind in described.items() if name.startswith(_MODEL)} or {
        name: kind for name, kind in described.items() if not name.startswith("optim")
    }
    known = {f"torch.{name}" for name in _NAMES}
    tensors = {
        name: kind
        for name, kind in sorted(model.items())
        if isinstance(kind, TensorStorageMetadata) and str(kind.properties.dtype) in known
    }
    if not tensors:
        raise CheckpointError("it holds no tensors of a model", given=checkpoint)
    return tensors, sorted(set(model) - set(tensors))


def _wanted(own: Any, dtype: str | None, torch: Any) -> Any:
    return getattr(torch, dtype) if dtype is not None and own.is_floating_point else own


def _grouped(sizes: Mapping[str, int], most: int) -> list[list[str]]:
    """Share tensors out to files, in the order of their names."""
    groups: list[list[str]] = []
    room = 0
    for name, size in sizes.items():
        if not groups or size > room:
            groups.append([])
            room = most
        groups[-1].append(name)
        room -= size
    return groups


def _file_name(number: int, count: int) -> str:
    return "model.safetensors" if count == 1 else f"model-{number + 1:05d}-of-{count:05d}.safetensors"


def _plain(name: str) -> str:
    return name[len(_MODEL) :] if name.startswith(_MODEL) else name


def _load(state: dict[str, Any], checkpoint: str) -> None:
    import warnings

    import torch.distributed.checkpoint as dcp

    from cordee.systems.checkpoints.node.dcp_reader import reader

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        dcp.load(state, storage_reader=reader(checkpoint), no_dist=True)


def _write(path: str, state: Mapping[str, Any], wanted: Mapping[str, Any], torch: Any) -> int:
    """Write one file and return its bytes; it is on the disk then."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, tensor in state.items():
        size = tensor.numel() * wanted[name].itemsize
        kind = _NAMES[str(wanted[name]).removeprefix("torch.")]
        header[_plain(name)] = {"dtype": kind, "shape": list(tensor.shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, tensor in state.items():
            flat = tensor.to(wanted[name]).contiguous().reshape(-1)
            if flat.numel():
                file.write(flat.view(torch.uint8).numpy())
        file.flush()
        os.fsync(file.fileno())
        return file.tell()


def _write_index(folder: str, files: list[str], groups: list[list[str]], total: int) -> None:
    where = {_plain(name): file for file, names in zip(files, groups, strict=True) for name in names}
    with open(os.path.join(folder, "model.safetensors.index.json"), "w", encoding="utf-8") as index:
        json.dump({"metadata": {"total_size": total}, "weight_map": where}, index, indent=1)
