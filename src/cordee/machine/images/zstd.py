"""Layers compressed with zstd: by Python itself (3.14), by the package `zstandard`, else by the command `zstd`."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from typing import IO, TYPE_CHECKING, Any

from cordee.machine.images.errors import ImageError

if TYPE_CHECKING:
    from cordee.machine.images.byte_reader import ByteReader

ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_CHUNK_BYTES = 1 << 20


class ZstdError(Exception):
    """What was given is no zstd, or damaged."""


def open_zstd(reader: ByteReader, given: str) -> Any:
    """Return a reader of what `reader` holds compressed.

    Raises:
        ImageError: nothing on this machine can read zstd.
    """
    if sys.version_info >= (3, 14):
        from compression import zstd

        return _Library(zstd.ZstdFile(reader), zstd.ZstdError)
    try:
        import zstandard
    except ImportError:
        return _Command(reader, given)
    stream = zstandard.ZstdDecompressor().stream_reader(reader, read_across_frames=True, closefd=False)
    return _Library(stream, zstandard.ZstdError)


class _Library:
    """A library's reader, whose errors are told as ours."""

    def __init__(self, reader: Any, fault: type[Exception]) -> None:
        self._reader, self._fault = reader, fault

    def read(self, size: int = -1, /) -> bytes:
        try:
            data: bytes = self._reader.read(size)
        except self._fault as error:
            raise ZstdError(str(error)) from None
        return data

    def close(self) -> None:
        self._reader.close()


class _Command:
    """`zstd -dc`, fed by a thread."""

    def __init__(self, reader: ByteReader, given: str) -> None:
        program = shutil.which("zstd")
        if program is None:
            raise ImageError(
                "a layer of the image is compressed with zstd, which nothing here can read",
                given=given,
                next="pip install 'cordee[zstd]', or install the command zstd",
            )
        self._process = subprocess.Popen(
            [program, "-dcq"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        self._fault: BaseException | None = None
        self._feeder = threading.Thread(target=self._feed, args=(reader,), daemon=True)
        self._feeder.start()

    def _feed(self, reader: ByteReader) -> None:
        pipe = self._pipe(self._process.stdin)
        try:
            while data := reader.read(_CHUNK_BYTES):
                pipe.write(data)
        except BrokenPipeError:
            pass  # it has ended before its input has, and says why
        except BaseException as error:
            self._fault = error
        finally:
            try:
                pipe.close()
            except BrokenPipeError:
                pass

    def read(self, size: int = -1, /) -> bytes:
        data = self._pipe(self._process.stdout).read(size)
        if not data and size:
            self._feeder.join()
            if self._fault:
                raise self._fault
            if self._process.wait():
                raise ZstdError(self._pipe(self._process.stderr).read().decode(errors="replace").strip())
        return data

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._feeder.join()
        self._pipe(self._process.stdout).close()
        self._pipe(self._process.stderr).close()

    @staticmethod
    def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
        assert pipe is not None
        return pipe
