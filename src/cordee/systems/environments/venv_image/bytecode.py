"""Byte code of many sources, in their order, made at once by several processes of the environment's own interpreter."""

from __future__ import annotations

import os
import struct
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, NamedTuple

from cordee.machine.squashfs.errors import PackError

WORKER = Path(__file__).with_name("compile_worker.py")
_FRAME = struct.Struct("<cq")


class Code(NamedTuple):
    """The .pyc of one source; `data` is None when it does not compile, `reused` says that one lay there already."""

    data: bytes | None
    reused: bool


class Compilers:
    """Processes that compile; ended with the block. The k-th of n has every n-th source, so that order costs nothing.

    They wait while nobody reads, and end by themselves when the reader is gone.
    """

    def __init__(self, python: Path, sources: Sequence[tuple[Path, str]], processes: int) -> None:
        self._sources, self._workers = sources, max(1, min(processes, len(sources)))
        self._children: list[subprocess.Popen[bytes]] = []
        try:
            for first in range(self._workers):
                self._children.append(self._start(python, sources[first :: self._workers]))
        except BaseException:
            self.__exit__(None, None, None)
            raise

    @staticmethod
    def _start(python: Path, share: Sequence[tuple[Path, str]]) -> subprocess.Popen[bytes]:
        with tempfile.TemporaryFile() as words:
            words.write(b"".join(os.fsencode(path) + b"\0" + os.fsencode(name) + b"\0" for path, name in share))
            words.seek(0)
            argv = [str(python), "-I", "-S", "-B", str(WORKER)]
            return subprocess.Popen(argv, stdin=words, stdout=subprocess.PIPE)

    def __enter__(self) -> Iterator[Code]:
        return self._results()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for child in self._children:
            assert child.stdout is not None
            child.stdout.close()
            child.kill()
            child.wait()

    def _results(self) -> Iterator[Code]:
        for index, (path, _) in enumerate(self._sources):
            child = self._children[index % self._workers]
            assert child.stdout is not None
            head = child.stdout.read(_FRAME.size)
            if len(head) < _FRAME.size:
                raise _ended(child, path)
            how, length = _FRAME.unpack(head)
            yield Code(None if length < 0 else _exactly(child.stdout, length, child, path), how == b"r")


def _exactly(stream: IO[bytes], length: int, child: subprocess.Popen[bytes], path: Path) -> bytes:
    data = stream.read(length)
    if len(data) < length:
        raise _ended(child, path)
    return data


def _ended(child: subprocess.Popen[bytes], path: Path) -> PackError:
    return PackError(
        f"the environment's interpreter ended while it compiled (exit code {child.wait()})",
        given=path,
        next="its words are above; is the environment whole, and does nobody change it meanwhile?",
    )
