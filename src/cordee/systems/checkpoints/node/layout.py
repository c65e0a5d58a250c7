"""Where the tensors of a rank's snapshot lie in memory: a save whose state has the same shape copies them there, and nothing else.

PyTorch's distributed checkpoint plans and pickles for each tensor, which takes longer than the copy where tensors are small. Its files
are the same for every save of a training but for the bytes of the tensors, as long as names, types and shapes are.
"""

from __future__ import annotations

import contextlib
import io
import os
import zipfile
from typing import Any, Optional, Sequence

from cordee.systems.checkpoints.node.ranks import world
from cordee.systems.checkpoints.node.snapshot import SnapshotMemory

_DATA = "/data/0"
_LOCAL_HEADER_BYTES, _NAME_LENGTH_AT = 30, 26
_NOT_SO = (ValueError, KeyError, TypeError, AttributeError, RuntimeError, zipfile.BadZipFile)


class SnapshotLayout:
    """What a snapshot in memory holds, and where.

    Args:
        memory: that PyTorch has just written the files of a snapshot into.
        planner, items, results: of this rank's part: PyTorch's planner, what it planned, and where that was written.

    Attributes:
        files: (offset in memory, bytes) by name.
        end: where the next file goes.

    Raises:
        ValueError: not all of it can be found there.
    """

    def __init__(self, memory: SnapshotMemory, planner: Any, items: Sequence[Any], results: Sequence[Any]) -> None:
        self.files, self.end = dict(memory.files), memory.end
        self._shape = _shape(planner)
        self._tensors: list[tuple[Any, Any]] = []
        self._objects: list[tuple[Any, memoryview]] = []
        self._found: list[tuple[Any, Any]] = []
        written = {result.index: result.storage_data for result in results}
        for item in items:
            about = written[item.index]
            place = self.files[about.relative_path][0] + about.offset
            region = memory.view(place, about.length)
            if item.tensor_data is None:
                self._objects.append((item, region))
            else:
                self._tensors.append((item, _slot(region, _bytes_of(planner.resolve_data(item)))))

    def fits(self, state: dict[str, Any]) -> bool:
        """Return whether a state has the same shape; what is no tensor is copied then already."""
        with contextlib.suppress(*_NOT_SO):
            return self._look(state)
        return False

    def _look(self, state: dict[str, Any]) -> bool:
        from torch.distributed.checkpoint import DefaultSavePlanner

        planner = DefaultSavePlanner()
        planner.set_up_planner(state)
        if _shape(planner) != self._shape:
            return False
        for item, region in self._objects:
            made = planner.resolve_data(item).getbuffer()
            if len(made) != len(region):
                return False
            region[:] = made
        self._found = [(slot, planner.resolve_data(item)) for item, slot in self._tensors]
        return all(len(slot) == tensor.numel() * tensor.itemsize for slot, tensor in self._found)

    def copy(self) -> None:
        """Copy the tensors of the state that was looked at."""
        for slot, tensor in self._found:
            slot.copy_(_bytes_of(tensor))
        self._found = []


def layout_of(memory: SnapshotMemory, planner: Any, items: Sequence[Any], results: Any) -> Optional[SnapshotLayout]:
    """Return the layout of a snapshot, None where it cannot be used again."""
    with contextlib.suppress(*_NOT_SO):
        return SnapshotLayout(memory, planner, items, results)
    return None


def _shape(planner: Any) -> list[Any]:
    """Return all that names and bytes in a rank's files follow from, but for what tensors hold."""
    return [planner.mappings, *map(_shape_of, planner.state_dict.values())]


def _shape_of(value: Any) -> Any:
    import torch

    if not isinstance(value, torch.Tensor):
        return None
    local = getattr(value, "_local_tensor", value)
    if type(local) not in (torch.Tensor, torch.nn.Parameter) or local.layout is not torch.strided or local.is_quantized:
        raise ValueError(f"tensors of the type {type(value).__name__} are planned anew")
    about = (value.dtype, value.shape, local.shape, local.stride(), local.is_conj(), local.is_neg())
    return (*about, value.placements, value.device_mesh) if local is not value else about


def _bytes_of(tensor: Any) -> Any:
    """Return the bytes of a tensor in the order in which PyTorch stores them."""
    import torch

    bare = tensor.detach()
    if bare.untyped_storage().size() != bare.numel() * bare.itemsize:
        bare = bare.clone()
    return torch.empty(0, dtype=torch.uint8, device=bare.device).set_(bare.untyped_storage())


def _slot(region: memoryview, data: Any) -> Any:
    """Return the memory of a tensor's bytes in what `torch.save` has written of it.

    Raises:
        ValueError, zipfile.BadZipFile: it does not lie there in one piece.
    """
    import torch

    with zipfile.ZipFile(_Window(region)) as archive:  # type: ignore[arg-type]
        (entry,) = [one for one in archive.infolist() if one.filename.endswith(_DATA)]
    if entry.file_size != len(data) or entry.compress_type != zipfile.ZIP_STORED:
        raise ValueError("a tensor is not stored as it is")
    at = entry.header_offset + _NAME_LENGTH_AT
    lengths = (int.from_bytes(region[begin : begin + 2], "little") for begin in (at, at + 2))
    begin = entry.header_offset + _LOCAL_HEADER_BYTES + sum(lengths)
    return torch.frombuffer(region[begin : begin + len(data)], dtype=torch.uint8) if len(data) else data


class _Window(io.RawIOBase):
    """A part of memory as a file to read."""

    def __init__(self, region: memoryview) -> None:
        self._region, self._at = region, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: len(self._region)}[whence]
        return self._at

    def readinto(self, buffer: Any) -> int:
        part = self._region[self._at : self._at + len(buffer)]
        buffer[: len(part)] = part
        self._at += len(part)
        return len(part)


def expected_bytes(model: Any, optimizer: Any) -> int:
    """Return about how many bytes this rank will save; what is the same on all ranks is shared out among them."""
    ranks = world()[1]
    optimizers = optimizer if isinstance(optimizer, (list, tuple)) else [optimizer]
    states = [values for one in optimizers if one is not None for values in one.state.values()]
    found = [*model.parameters(), *model.buffers()] if model is not None else []
    found += [value for values in states for value in values.values() if hasattr(value, "untyped_storage")]
    total = 0
    for tensor in {id(one): one for one in found}.values():
        local = getattr(tensor, "_local_tensor", None)
        total += tensor.nbytes // ranks if local is None else local.nbytes
    return total
