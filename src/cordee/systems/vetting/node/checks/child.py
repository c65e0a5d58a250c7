"""A process that a check starts: ended means that it has ended, whatever it has left behind that holds its outputs open."""

from __future__ import annotations

import os
import select
import subprocess
import time
from typing import Optional

_MOST_BYTES = 1 << 20
_PART_BYTES = 1 << 16
_POLL_S = 0.01


class CheckChild:
    """Runs a command in the group of the check, and keeps the end of what it writes.

    Args:
        argv: the command.
        env, workdir: where it runs.
        request: what it reads from standard input.

    Raises:
        OSError: it cannot be started.
    """

    def __init__(self, argv: list[str], env: dict[str, str], workdir: str, request: bytes = b"") -> None:
        question = os.memfd_create("request")
        try:
            os.write(question, request)
            os.lseek(question, 0, os.SEEK_SET)
            self._process = subprocess.Popen(
                argv, stdin=question, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env, cwd=workdir
            )
        finally:
            os.close(question)
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._written = {self._process.stdout.fileno(): b"", self._process.stderr.fileno(): b""}
        self._streams = tuple(self._written)
        self._open = set(self._streams)
        for descriptor in self._streams:
            os.set_blocking(descriptor, False)
        try:
            self._end: Optional[int] = os.pidfd_open(self._process.pid)
        except (AttributeError, OSError):  # an old kernel: looked at again and again instead
            self._end = None

    @property
    def code(self) -> Optional[int]:
        """The exit code, negative for a signal; None while it runs."""
        return self._process.returncode

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def output(self) -> bytes:
        """The end of what it has written to standard output."""
        return self._written[self._streams[0]]

    @property
    def errors(self) -> bytes:
        """The end of what it has written to standard error."""
        return self._written[self._streams[1]]

    def wait(self, seconds: float) -> bool:
        """Wait for its end, and return whether it has ended."""
        until = time.monotonic() + seconds
        while self._process.poll() is None:
            left = until - time.monotonic()
            if left <= 0:
                self._read()
                return False
            watched = [*self._open, *([] if self._end is None else [self._end])]
            select.select(watched, [], [], left if self._end is not None else min(left, _POLL_S))
            self._read()
        self._read()
        return True

    def signal(self, number: int) -> None:
        """Send it a signal."""
        self._process.send_signal(number)

    def close(self) -> None:
        """Kill it if it runs, and let go of it."""
        if self._process.poll() is None:
            self._process.kill()
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()
        if self._end is not None:
            os.close(self._end)

    def _read(self) -> None:
        """Take what is there now."""
        for descriptor in tuple(self._open):
            while True:
                try:
                    part = os.read(descriptor, _PART_BYTES)
                except BlockingIOError:
                    break
                if not part:
                    self._open.discard(descriptor)
                    break
                self._written[descriptor] = (self._written[descriptor] + part)[-_MOST_BYTES:]
                if len(part) < _PART_BYTES:
                    break
