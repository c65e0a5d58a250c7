"""Reading PyTorch's distributed checkpoints without running what is in them: plain data and torch's own descriptions only."""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
from typing import Any, BinaryIO, Iterator

from cordee.machine.foreign_files import regular

_METADATA = ".metadata"
_DESCRIPTION = "torch.distributed.checkpoint.metadata"
_ALLOWED = {
    ("collections", "OrderedDict"),
    ("pathlib", "Path"),
    ("pathlib", "PosixPath"),
    ("pathlib", "PurePosixPath"),
    ("pathlib._local", "Path"),
    ("pathlib._local", "PosixPath"),
    ("pathlib._local", "PurePosixPath"),
    ("torch", "Size"),
    ("torch.serialization", "_get_layout"),
    ("torch.distributed.checkpoint.filesystem", "_StorageInfo"),
    (_DESCRIPTION, "BytesStorageMetadata"),
    (_DESCRIPTION, "ChunkStorageMetadata"),
    (_DESCRIPTION, "Metadata"),
    (_DESCRIPTION, "MetadataIndex"),
    (_DESCRIPTION, "StorageMeta"),
    (_DESCRIPTION, "TensorProperties"),
    (_DESCRIPTION, "TensorStorageMetadata"),
    (_DESCRIPTION, "_MEM_FORMAT_ENCODING"),
}


def load(state: dict[str, Any], path: str) -> None:
    """Fill `state` from a distributed checkpoint, as `torch.distributed.checkpoint.load` does; every rank calls it.

    Raises:
        CheckpointException: it cannot be read, or names what is no part of a checkpoint (the cause says what).
    """
    import torch.distributed.checkpoint as dcp

    with _numpy_numbers():
        dcp.load(state, storage_reader=reader(path), planner=_planner())


def read_metadata(file: BinaryIO) -> Any:
    """Return the description of a distributed checkpoint.

    Raises:
        pickle.UnpicklingError: it names anything but torch's own classes for it; nothing of that was run.
    """
    return _Plain(file).load()


class _Plain(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        import torch

        kind = getattr(torch, name, None) if module == "torch" and "." not in name else None
        if (module, name) in _ALLOWED or isinstance(kind, (torch.dtype, torch.layout)):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"{_METADATA} is refused: it names {module}.{name}, which no checkpoint needs")


def reader(path: str) -> Any:
    """Return a storage reader for `path` that runs nothing of what its description names."""
    from torch.distributed.checkpoint import FileSystemReader
    from torch.distributed.checkpoint.metadata import StorageMeta

    class Reader(FileSystemReader):  # type: ignore[misc]
        def read_metadata(self, *args: Any, **kwargs: Any) -> Any:
            with open(os.path.join(path, _METADATA), "rb", opener=regular) as file:
                metadata = read_metadata(file)
            if getattr(metadata, "storage_meta", None) is None:
                metadata.storage_meta = StorageMeta()
            metadata.storage_meta.load_id = self.load_id
            return metadata

    return Reader(path)


def _planner() -> Any:
    import torch
    from torch.distributed.checkpoint import DefaultLoadPlanner

    class Planner(DefaultLoadPlanner):  # type: ignore[misc]
        def load_bytes(self, read_item: Any, value: Any) -> None:
            torch.load(value, weights_only=True)  # raises where there is more than data; torch's own does not look
            value.seek(0)
            super().load_bytes(read_item, value)

    return Planner()


@contextlib.contextmanager
def _numpy_numbers() -> Iterator[None]:
    """Let numbers of numpy through, such as a learning rate that was computed with it."""
    import torch

    numpy = sys.modules.get("numpy")
    if numpy is None or not hasattr(torch.serialization, "safe_globals"):
        yield
        return
    kinds = {
        type(numpy.dtype(name)) for name in ("f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?")
    }
    scalar = numpy.float64(0).__reduce__()[0]
    with torch.serialization.safe_globals([scalar, numpy.dtype, *kinds]):
        yield
