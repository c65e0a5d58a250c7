"""Prints byte code for sources; run by the interpreter of the environment that is packed, Python 3.7 or newer.

On standard input: pairs of path and file name inside, each ended by a NUL. On standard output, for each pair: a
length (8 bytes, little-endian, signed), then a .pyc of that length: its flags say `unchecked hash` (PEP 552), so that
nobody looks at the source's time. The length -1 stands for a source that does not compile. One byte goes before each
length: `r` when a .pyc that was there held the code, `c` when it was compiled.
"""

from __future__ import annotations

import importlib.util
import marshal
import os
import struct
import sys
import warnings
from typing import Optional

UNCHECKED = 1
HEADER = 16


def code_at_hand(path: str, source: bytes) -> Optional[bytes]:
    """Return the marshalled code of a .pyc beside `path` that is of this source and this interpreter; None: none is."""
    try:
        with open(importlib.util.cache_from_source(path, optimization=""), "rb") as stream:
            data = stream.read()
        status = os.stat(path)
    except OSError:
        return None
    if len(data) <= HEADER or data[:4] != importlib.util.MAGIC_NUMBER:
        return None
    (flags,) = struct.unpack("<I", data[4:8])
    if flags == 0:
        expected = struct.pack("<II", int(status.st_mtime) & 0xFFFFFFFF, status.st_size & 0xFFFFFFFF)
    elif flags & UNCHECKED:
        expected = importlib.util.source_hash(source)
    else:
        return None
    return data[HEADER:] if data[8:HEADER] == expected else None


def compiled(name: str, source: bytes) -> Optional[bytes]:
    """Return the marshalled code of a source; None: it does not compile."""
    try:
        return marshal.dumps(compile(source, name, "exec", dont_inherit=True, optimize=0))
    except (SyntaxError, ValueError, OverflowError, RecursionError, MemoryError):
        return None


def main() -> None:
    warnings.simplefilter("ignore")
    words = sys.stdin.buffer.read().split(b"\0")[:-1]
    out = sys.stdout.buffer
    for path, name in zip(map(os.fsdecode, words[::2]), map(os.fsdecode, words[1::2])):
        with open(path, "rb") as stream:
            source = stream.read()
        code, how = code_at_hand(path, source), b"r"
        if code is None:
            code, how = compiled(name, source), b"c"
        if code is None:
            out.write(how + struct.pack("<q", -1))
            continue
        head = importlib.util.MAGIC_NUMBER + struct.pack("<I", UNCHECKED) + importlib.util.source_hash(source)
        out.write(how + struct.pack("<q", HEADER + len(code)) + head + code)
    out.flush()


if __name__ == "__main__":
    try:
        main()
    except BrokenPipeError:  # nobody reads any more; what is not written yet is not written at the end either
        os._exit(1)
