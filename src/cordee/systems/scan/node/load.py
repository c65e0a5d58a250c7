"""`cordee.load`: a model or checkpoint file is looked at before it is loaded, and those very bytes are loaded."""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
import pickle
import struct
import sys
from typing import Any, Iterator, Union

from cordee.client import rank as _rank
from cordee.core.errors import CordeeError
from cordee.core.units import format_size
from cordee.machine.foreign_files import parse_json, regular
from cordee.machine.memory import MemorySource
from cordee.systems.scan.node.formats.pickle_globals import NESTED_LOADERS, ONLY_MADE, PickleGlobals
from cordee.systems.scan.node.scanner import Scanner
from cordee.systems.scan.node.verdict import FileVerdict
from cordee.wire.facts import FindingFact

POLICY, ALLOWED = "CORDEE_SCAN", "CORDEE_SCAN_ALLOW"
_CHUNK = 16 << 20
_SEALS = 0x0001 | 0x0002 | 0x0004 | 0x0008  # no more seals, no shrinking, growing, writing
_ADD_SEALS = 1033
_TORCH_MAGIC = 0x1950A86A20F9469CFC6C
_TORCH_TYPES = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "I32": "int32", "I16": "int16",
    "I8": "int8", "U8": "uint8", "U16": "uint16", "U32": "uint32", "U64": "uint64", "BOOL": "bool", "C64": "complex64",
    "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2",
}  # fmt: skip


class RefusedFile(CordeeError):
    """A file may not be loaded: it does harm, or nobody can say that it does not."""

    kind = "refused-file"
    exit_code = 1

    def __str__(self) -> str:
        return f"{self.file}: {self.text}"


def load(path: Union[str, os.PathLike[str]], *, map_location: Any = "cpu") -> Any:
    """Return what is in a model or checkpoint file: of safetensors, PyTorch (`weights_only`), numpy, or a plain pickle.

    The file is copied into memory, looked at there by a process that can do nothing else, and loaded from there: whoever changes
    it meanwhile changes nothing. In a run `[scan] policy` says what is done with a file that is not clean; elsewhere it is refused.

    Args:
        path: of the file.
        map_location: where PyTorch puts tensors, as for `torch.load`.

    Returns:
        what `torch.load` returns; of safetensors a dict of tensors by name; of numpy an array or a dict of arrays; of a plain pickle what it holds, where
            all of its classes are known to be harmless.

    Raises:
        RefusedFile: the file is poisoned, or it cannot be said that it is not (`file`, and what was seen).
        OSError: it cannot be read.
    """
    name, policy = os.fspath(path), os.environ.get(POLICY, "block")
    with _copied(name) as copy:
        verdict = None if policy == "off" else _verdict(copy, name)
        if verdict is not None and verdict.sights:
            _tell(verdict, refused=policy == "block" and not verdict.trusted)
        return _loaded(copy, name, map_location)


def _tell(verdict: FileVerdict, *, refused: bool) -> None:
    """Say the gravest that was seen in a file, also as a finding of the run where this process speaks for a rank.

    Raises:
        RefusedFile: the file is refused.
    """
    sight = max(verdict.sights, key=lambda sight: ("warn", "unknown", "block").index(sight.severity))
    what = f"take it from whom you trust, as safetensors if you can; `cordee scan --explain {sight.rule}` says what this is"
    text = sight.text + (f" ({sight.where})" if sight.where else "") + f" - {sight.rule}"
    error = RefusedFile(f"it is not loaded: {text}" if refused else text, file=verdict.path, next=what)
    if _rank.open_writer() is not None:
        _rank.tell_fact("cordee.load", FindingFact(f"scan-{sight.rule}", str(error), what))
    if refused:
        raise error
    print(f"cordee: {error}", file=sys.stderr)


def _verdict(descriptor: int, path: str) -> FileVerdict:
    with Scanner(_allowed()) as scanner:
        return scanner.scan_descriptor(descriptor, path)


def _allowed() -> list[str]:
    allowed: list[str] = json.loads(os.environ.get(ALLOWED) or "[]")
    return allowed


@contextlib.contextmanager
def _copied(path: str) -> Iterator[int]:
    """Yield a descriptor of a copy in memory that nobody can change."""
    copy = os.memfd_create("cordee-load", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        source = regular(path)
        try:
            left = os.fstat(source).st_size
            _refuse_larger(left, path)
            while left and (sent := os.sendfile(copy, source, None, min(left, _CHUNK))):
                left -= sent
        finally:
            os.close(source)
        fcntl.fcntl(copy, getattr(fcntl, "F_ADD_SEALS", _ADD_SEALS), _SEALS)
        os.lseek(copy, 0, os.SEEK_SET)
        yield copy
    finally:
        os.close(copy)


def _refuse_larger(size: int, path: str) -> None:
    reading = MemorySource().read()
    if reading is not None and size > reading.available_bytes:
        has, left = format_size(size), format_size(reading.available_bytes)
        raise RefusedFile(
            f"it has {has}, and the copy that is looked at does not fit in the {left} of memory that this node has left",
            file=path,
            next="save it in parts, load it on a node with more memory, or scan it once by `cordee scan` and load it without Cordée",
        )


def _loaded(descriptor: int, path: str, map_location: Any) -> Any:
    head = os.pread(descriptor, 16, 0)
    again = f"/proc/self/fd/{descriptor}"
    if head.startswith(b"\x93NUMPY"):
        import numpy

        return numpy.load(again, allow_pickle=False)
    if head.startswith(b"PK"):
        import torch

        if _is_numpy(again):
            import numpy

            with numpy.load(again, allow_pickle=False) as arrays:
                return dict(arrays)
        return torch.load(again, map_location=map_location, weights_only=True, mmap=True)
    if head[8:9] == b"{" and struct.unpack("<Q", head[:8])[0] < os.fstat(descriptor).st_size:
        return _safetensors(descriptor, map_location)
    if head[:1] == b"\x80":
        return _pickled(descriptor, map_location)
    raise RefusedFile(
        "it is no file that can be loaded here",
        file=path,
        allowed="safetensors, PyTorch's checkpoints, numpy's .npy and .npz",
    )


class _Known(pickle.Unpickler):
    """Unpickles with the names that are known to be harmless, and with no other."""

    def __init__(self, file: Any, known: PickleGlobals) -> None:
        super().__init__(file)
        self._known = known

    def find_class(self, module: str, name: str) -> Any:
        full = f"{module}.{name}"
        if full in NESTED_LOADERS:
            return _tensors
        if self._known.in_pickle(module, name) != "clean" or full in ONLY_MADE:
            raise pickle.UnpicklingError(f"it looks up {full}, which is not known to be harmless")
        return super().find_class(module, name)


def _tensors(content: bytes) -> Any:
    """Return what PyTorch has saved in the bytes of a pickle, and nothing else that they may hold."""
    import torch

    return torch.load(io.BytesIO(content), weights_only=True)


def _pickled(descriptor: int, map_location: Any) -> Any:
    """Return what a pickle holds, of PyTorch's older format or a plain one."""
    with open(os.dup(descriptor), "rb") as file:
        file.seek(0)
        first = _Known(file, PickleGlobals(_allowed())).load()
        if first != _TORCH_MAGIC:
            return first
        import torch

        file.seek(0)
        return torch.load(file, map_location=map_location, weights_only=True)


def _is_numpy(path: str) -> bool:
    import zipfile

    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
    return bool(names) and all(name.endswith(".npy") for name in names)


def _safetensors(descriptor: int, map_location: Any) -> dict[str, Any]:
    import mmap

    import torch

    size = struct.unpack("<Q", os.pread(descriptor, 8, 0))[0]
    header = parse_json(os.pread(descriptor, size, 8))
    mapped = mmap.mmap(descriptor, 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    tensors = {}
    for name, about in header.items():
        if name != "__metadata__":
            kind, (begin, end) = getattr(torch, _TORCH_TYPES[about["dtype"]]), about["data_offsets"]
            count = (end - begin) // torch.empty((), dtype=kind).element_size()
            flat = (
                torch.frombuffer(mapped, dtype=kind, count=count, offset=8 + size + begin)
                if count
                else torch.empty(0, dtype=kind)
            )
            tensors[name] = flat.reshape(about["shape"]).to(map_location or "cpu")
    return tensors
