"""Writes what tasks print to the node's log in a thread, so that a slow file system never silences the agent."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import Callable, Collection, Optional

from cordee.machine.tasks.last_words import reason_in
from cordee.runs.logframes import LogWriter

_HIGH_BYTES = 8 << 20
_LOW_BYTES = 2 << 20
_TAIL_BYTES = 4096
_TOGETHER_BYTES = 1 << 20
_LOOK_S = 0.05


class OutputLog:
    """A queue in front of a LogWriter; when it is full the caller is told to stop reading.

    Args:
        writer: where the frames go; used by the thread alone.
        on_pressure: called with True when the queue is full and with False when it has drained; from either thread.
    """

    def __init__(self, writer: LogWriter, on_pressure: Callable[[bool], None]) -> None:
        self._writer = writer
        self._on_pressure = on_pressure
        self._queue: deque[tuple[int, int, int, bytes, float]] = deque()
        self._bytes = 0
        self._given_up = 0
        self._full = False
        self._closing = False
        self._condition = threading.Condition()
        self._thread = threading.Thread(target=self._write_all, name="cordee-log", daemon=True)
        self._thread.start()

    @property
    def dropped_bytes(self) -> int:
        """Bytes that are not in the file and will not be."""
        return self._writer.dropped_bytes + self._given_up

    @property
    def queued_bytes(self) -> int:
        """Bytes that are not in the file yet."""
        return self._bytes

    @property
    def written(self) -> tuple[str, int]:
        """Name of the file, and bytes in it so far."""
        return self._writer.path.name, self._writer.size

    def write(self, rank: int, stream: int, attempt: int, data: bytes) -> None:
        """Queue output; never blocks."""
        with self._condition:
            self._queue.append((rank, stream, attempt, data, time.time()))
            self._bytes += len(data)
            became_full = not self._full and self._bytes > _HIGH_BYTES
            self._full = self._full or became_full
            self._condition.notify_all()
        if became_full:
            self._on_pressure(True)

    def end(self) -> None:
        """Take no more; what is queued is written, and the file closed, in the background."""
        with self._condition:
            self._closing = True
            self._condition.notify_all()

    def close(self, silent_s: float = 5.0, most_s: float = 30.0) -> bool:
        """Write what is queued and close; returns whether all of it reached the file.

        Waits for as long as the disk takes something every `silent_s`, at most `most_s`; what is left then counts as dropped.
        """
        self.end()
        began = moved = time.monotonic()
        left = self._bytes
        while self._thread.is_alive():
            now = time.monotonic()
            if self._bytes != left:
                left, moved = self._bytes, now
            if now - moved >= silent_s or now - began >= most_s:
                self._given_up = self._bytes
                return False
            self._thread.join(min(_LOOK_S, silent_s))
        return self._writer.dropped_bytes == 0

    def _write_all(self) -> None:
        while True:
            with self._condition:
                while not self._queue and not self._closing:
                    self._condition.wait()
                if not self._queue:
                    break
                output, size = [], 0
                while self._queue and size < _TOGETHER_BYTES:
                    output.append(self._queue.popleft())
                    size += len(output[-1][3])
            self._writer.write_many(output)
            with self._condition:
                self._bytes -= size
                drained = self._full and self._bytes < _LOW_BYTES
                self._full = self._full and not drained
            if drained:
                self._on_pressure(False)
        self._writer.close()


class LastOutput:
    """Keeps the last bytes that a rank printed, to say in one line why it ended.

    Args:
        secrets: that it was given, and that are not said.
    """

    def __init__(self, secrets: Collection[str] = ()) -> None:
        self._secrets = secrets
        self._streams: dict[int, bytes] = {}

    def add(self, stream: int, data: bytes) -> None:
        """Remember output of stream 0 (out) or 1 (err)."""
        self._streams[stream] = (self._streams.get(stream, b"") + data[-_TAIL_BYTES:])[-_TAIL_BYTES:]

    def line(self, begins: bytes) -> Optional[str]:
        """Return what follows these bytes in the last line of standard error that begins with them."""
        found = [line[len(begins) :] for line in self._streams.get(1, b"").split(b"\n") if line.startswith(begins)]
        return found[-1].decode(errors="replace").strip()[:400] if found else None

    def message(self, signal: Optional[str] = None) -> Optional[str]:
        """Return the line that says why the rank ended, see `reason_in`; standard output counts where errors say nothing."""
        out, err = (self._streams.get(stream, b"").replace(b"\r", b"\n").decode(errors="replace") for stream in (0, 1))
        return reason_in(err.split("\n"), signal, secrets=self._secrets) or reason_in(
            out.split("\n"), signal, of_errors=bool(err), secrets=self._secrets
        )
