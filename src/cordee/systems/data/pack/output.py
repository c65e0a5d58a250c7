"""Writes a file's bytes in their order, by a thread: while one buffer is written, the next one is filled."""

from __future__ import annotations

import os
from concurrent.futures import Future, ThreadPoolExecutor

_BUFFERS = 3


class Output:
    """An open file that is appended to.

    Args:
        descriptor: of the file. buffer_bytes: how large the buffers are that it lends.
    """

    def __init__(self, descriptor: int, buffer_bytes: int) -> None:
        self._descriptor = descriptor
        buffers = [bytearray(buffer_bytes) for _ in range(_BUFFERS)]
        self._buffers = [(buffer, memoryview(buffer)) for buffer in buffers]
        self._lent = 0
        self._thread = ThreadPoolExecutor(1)
        self._waiting: list[Future[None]] = []

    def buffer(self) -> tuple[bytearray, memoryview]:
        """Return the next buffer that nobody writes from any more."""
        while len(self._waiting) >= _BUFFERS - 1:
            self._waiting.pop(0).result()
        self._lent = (self._lent + 1) % _BUFFERS
        return self._buffers[self._lent]

    def write(self, data: memoryview) -> None:
        """Append bytes that nobody changes until the next call of `drain`, or of `buffer` as often as there are buffers.

        Raises:
            OSError: what was given before could not be written.
        """
        if self._waiting and self._waiting[0].done():
            self._waiting.pop(0).result()
        self._waiting.append(self._thread.submit(self._write_all, data))

    def drain(self) -> None:
        """Wait until all is written.

        Raises:
            OSError: it could not be.
        """
        while self._waiting:
            self._waiting.pop(0).result()

    def close(self) -> None:
        """End the thread; what could not be written any more is given up."""
        self._thread.shutdown(cancel_futures=True)

    def _write_all(self, data: memoryview) -> None:
        while data:
            data = data[os.write(self._descriptor, data) :]
