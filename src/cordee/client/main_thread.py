"""The main thread of this process as another thread of it sees it: where it stands, and what it has had of the processor."""

from __future__ import annotations

import os
import resource
import sys
import threading
import time
from typing import NamedTuple, Optional

from cordee.client.kinds import COMMUNICATION, COMPUTE, DATA, SAVING, UNKNOWN, kind_of_frames, kind_of_wait
from cordee.client.steps import ANYWHERE, BETWEEN

_MOST_BYTES = 128
_RUNS = b"running"
_BUSY_SHARE = 2  # where the kernel does not say whether it runs: it does if it has used more than half of the time
_LATE_NS = 1_500_000


class Glance(NamedTuple):
    """One look.

    Attributes:
        at_ns: when, CLOCK_MONOTONIC.
        used_ns: what the main thread has used of a processor in its life.
        delayed_ns: for how long it has waited for a processor in its life.
        late_ns: how much too late it is, less what this thread waited for a processor; 0 where it is on time.
        runs: whether the main thread runs or could, rather than waiting for something.
        kind: what it is at.
    """

    at_ns: int
    used_ns: int
    delayed_ns: int
    late_ns: int
    runs: bool
    kind: int


class MainThread:
    """Looks at the main thread; made, and asked, by one other thread.

    Raises:
        OSError, AttributeError: this machine does not tell what a thread uses.
    """

    def __init__(self) -> None:
        thread = threading.main_thread()
        self._ident = thread.ident or 0
        self._clock = time.pthread_getcpuclockid(self._ident)
        time.clock_gettime_ns(self._clock)
        number = thread.native_id
        self._turns = _opened(f"/proc/self/task/{number}/schedstat")
        self._call = _opened(f"/proc/self/task/{number}/syscall")
        self._own = _opened("/proc/thread-self/schedstat")
        self._before = (0, 0)
        self._own_before_ns = _delayed_ns(self._own)

    def look(self, late_ns: int, grouped: bool, on_device: bool, part: int = ANYWHERE) -> Glance:
        """Return what is seen at this moment.

        Args:
            late_ns: how much too late this thread was woken for it.
            grouped: whether the rank is in a process group of several.
            on_device: whether it computes on a device: then it says only whether it waits for data or saves.
            part: of a step, that it says it is in.
        """
        at_ns, used_ns = time.monotonic_ns(), time.clock_gettime_ns(self._clock)
        delayed_ns, own_ns = _delayed_ns(self._turns), _delayed_ns(self._own)
        late_ns -= own_ns - self._own_before_ns
        self._own_before_ns = own_ns
        said = _content(self._call)
        busy = (used_ns - self._before[1]) * _BUSY_SHARE > at_ns - self._before[0]
        runs = said.startswith(_RUNS) if said else busy
        self._before = at_ns, used_ns
        kind = self._kind(runs, said, grouped, part, on_device)
        return Glance(at_ns, used_ns, delayed_ns, late_ns if late_ns > _LATE_NS else 0, runs, kind)

    def close(self) -> None:
        """Let go of what the kernel tells."""
        for descriptor in (self._turns, self._call, self._own):
            if descriptor is not None:
                os.close(descriptor)

    def _kind(self, runs: bool, said: bytes, grouped: bool, part: int, on_device: bool) -> int:
        kind = kind_of_frames(sys._current_frames().get(self._ident))
        if kind in (DATA, SAVING):
            return kind
        if on_device:
            return UNKNOWN
        if kind == COMMUNICATION and grouped:
            return kind
        if part == BETWEEN:
            return DATA
        return COMPUTE if runs else kind_of_wait(_number(said), grouped)


def major_faults() -> int:
    """Return for how many page faults of this process something was read from a disk."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_majflt


def _number(said: bytes) -> int:
    word = said.split(b" ", 1)[0]
    return int(word) if word.isdigit() else -1


def _delayed_ns(descriptor: Optional[int]) -> int:
    words = _content(descriptor).split()
    return int(words[1]) if len(words) == 3 else 0


def _content(descriptor: Optional[int]) -> bytes:
    if descriptor is None:
        return b""
    try:
        return os.pread(descriptor, _MOST_BYTES, 0)
    except OSError:
        return b""


def _opened(path: str) -> Optional[int]:
    """Return a descriptor of a file of the kernel's, None where it is not told."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    if _content(descriptor):
        return descriptor
    os.close(descriptor)
    return None
