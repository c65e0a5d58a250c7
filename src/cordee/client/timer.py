"""A sleep that says how late the kernel let it end, without the time that the thread then waited for the interpreter."""

from __future__ import annotations

import ctypes
import os
import sys
import time
from typing import Optional

_STEP_NS = 1_000_000
_ABSOLUTE = 1
_S = 1_000_000_000


class _Setting(ctypes.Structure):
    """`struct itimerspec`."""

    _fields_ = [(name, ctypes.c_long) for name in ("step_s", "step_ns", "first_s", "first_ns")]


class Timer:
    """A timer of the kernel's; where there is none it sleeps all the same, and says that nothing was late."""

    def __init__(self) -> None:
        self._descriptor: Optional[int] = None
        self._setting = _Setting(0, _STEP_NS, 0, 0)
        try:
            library = ctypes.CDLL(None, use_errno=True)
            self._set = library.timerfd_settime
            descriptor = library.timerfd_create(time.CLOCK_MONOTONIC, os.O_CLOEXEC)
        except (OSError, AttributeError):
            return
        if descriptor >= 0:
            self._descriptor = descriptor

    def sleep_until(self, due_ns: int) -> int:
        """Sleep until a moment of CLOCK_MONOTONIC; return how many nanoseconds later than that the thread was woken, in whole ms."""
        if self._descriptor is not None:
            self._setting.first_s, self._setting.first_ns = divmod(due_ns, _S)
            if self._set(self._descriptor, _ABSOLUTE, ctypes.byref(self._setting), None) == 0:
                times = int.from_bytes(os.read(self._descriptor, 8), sys.byteorder)
                return (times - 1) * _STEP_NS
        time.sleep(max(0, due_ns - time.monotonic_ns()) / _S)
        return 0

    def close(self) -> None:
        """Let go of the timer."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
