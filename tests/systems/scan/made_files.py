"""Files of each kind, harmless and with a payload: a payload writes a canary when it is run."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import json
import lzma
import os
import pickle
import struct
import tarfile
import zipfile
import zlib
from pathlib import Path
from typing import Any, NamedTuple

from cordee.faces.cli import main


class Payload:
    """Pickled, it touches a file when it is unpickled."""

    def __init__(self, canary: Path) -> None:
        self._canary = canary

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self._canary}",)


def call(module: str, name: str, *arguments: bytes) -> bytes:
    """Return a pickle, written by hand, that calls a function of that name with texts."""
    given = b"".join(b"X" + struct.pack("<I", len(one)) + one for one in arguments)
    return b"\x80\x02c" + f"{module}\n{name}\n".encode() + b"(" + given + b"tR."


def zipped(entries: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    """Return a zip archive."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return out.getvalue()


def tarred(entries: dict[str, bytes], kind: int = tarfile.PAX_FORMAT) -> bytes:
    """Return a tar archive."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=kind) as archive:
        for name, content in entries.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return out.getvalue()


def safetensors(tensors: dict[str, bytes], behind: bytes = b"", **changed: Any) -> bytes:
    """Return a safetensors file of bytes; `changed` replaces what its header says of a tensor."""
    header, at = {}, 0
    for name, content in tensors.items():
        header[name] = {"dtype": "U8", "shape": [len(content)], "data_offsets": [at, at + len(content)]}
        at += len(content)
    for name, about in changed.items():
        header[name] = about
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + b"".join(tensors.values()) + behind


def protobuf(*fields: tuple[int, Any]) -> bytes:
    """Return a message of numbers, texts and messages."""
    out = b""
    for number, value in fields:
        if isinstance(value, int):
            out += _varint(number << 3) + _varint(value)
        else:
            content = value.encode() if isinstance(value, str) else value
            out += _varint(number << 3 | 2) + _varint(len(content)) + content
    return out


def onnx(kind: str = "Add", domain: str = "", location: str = "") -> bytes:
    """Return a model of ONNX with one node, and one tensor that lies outside, if `location` says where."""
    node = protobuf((1, "a"), (2, "b"), (4, kind), *([(7, domain)] if domain else []))
    tensor = protobuf(
        (1, 2), (2, 1), (8, "w"), *([(13, protobuf((1, "location"), (2, location))), (14, 1)] if location else [])
    )
    return protobuf(
        (1, 8), (2, "made"), (7, protobuf((1, node), (2, "graph"), (5, tensor))), (8, protobuf((1, ""), (2, 17)))
    )


def gguf(**texts: str) -> bytes:
    """Return a GGUF file with texts as its metadata."""
    out = b"GGUF" + struct.pack("<IQQ", 3, 0, len(texts) + 1)
    out += _gguf_text("general.sizes") + struct.pack("<IIQ", 9, 4, 3) + struct.pack("<III", 1, 2, 3)
    for key, value in texts.items():
        out += _gguf_text(key.replace("__", ".")) + struct.pack("<I", 8) + _gguf_text(value)
    return out


def compressions() -> dict[str, Any]:
    """Return what packs bytes, by name."""
    return {"gzip": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress, "zlib": zlib.compress}


def payload_pickles(canary: Path) -> dict[str, bytes]:
    """Return pickles with a payload, of each protocol."""
    return {f"protocol {number}": pickle.dumps({"a": [1, Payload(canary)]}, number) for number in range(6)}


def _gguf_text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def _varint(value: int) -> bytes:
    out = b""
    while True:
        value, low = value >> 7, value & 0x7F
        out += bytes([low | (0x80 if value else 0)])
        if not value:
            return out


class Said(NamedTuple):
    """What a command printed, and its exit code."""

    exit_code: int
    output: str


def cordee(*arguments: object) -> Said:
    """Return what `cordee` says to these arguments."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        try:
            main([str(argument) for argument in arguments])
        except SystemExit as ended:
            return Said(int(ended.code or 0), out.getvalue())
    raise AssertionError("main always exits")
