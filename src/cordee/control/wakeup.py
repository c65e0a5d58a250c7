"""Waiting for the ends of processes and for a signal, without asking anybody again and again."""

from __future__ import annotations

import os
import select
import signal
from contextlib import suppress
from typing import Iterable

# Where the kernel cannot tell of processes that are not our children: /proc is asked, no disk.
_POLL_S = 0.2


class Wakeup:
    """Wakes the main thread of a process when a child ends, one of the given processes ends, or SIGUSR1 comes.

    Attributes:
        called: whether SIGUSR1 has come; whoever looks sets it back.
    """

    def __init__(self) -> None:
        self.called = False
        self._reading, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGUSR1, self._call)

    def _call(self, *_: object) -> None:
        self.called = True

    def wait(self, pids: Iterable[int], most_s: float) -> None:
        """Return when something of that has happened, or the time is up."""
        opened = []
        poll = select.poll()
        poll.register(self._reading, select.POLLIN)
        try:
            for pid in pids:
                try:
                    opened.append(os.pidfd_open(pid))
                    poll.register(opened[-1], select.POLLIN)
                except ProcessLookupError:
                    return
                except (OSError, AttributeError):  # an older kernel
                    most_s = min(most_s, _POLL_S)
            if not self.called:
                poll.poll(most_s * 1000.0)
        finally:
            for descriptor in opened:
                os.close(descriptor)
            with suppress(BlockingIOError):
                os.read(self._reading, 4096)
