"""Where in a training step the main thread is, as hooks of `cordee.observe` say it: the pulse's thread takes their marks."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import NamedTuple

# Not told; from the forward pass to the optimizer's end; from there to the next forward pass.
ANYWHERE, WITHIN, BETWEEN = range(3)
MOST_MARKS = 64


class Mark(NamedTuple):
    """Another part of the step began at this moment (CLOCK_MONOTONIC), when the main thread had used so much of a processor."""

    at_ns: int
    used_ns: int
    part: int


class StepMarks:
    """The marks of one process; only its main thread makes any.

    Attributes:
        part: that it is in.
    """

    def __init__(self) -> None:
        self.part = ANYWHERE
        self._main = threading.main_thread().ident
        self._marks: deque[Mark] = deque(maxlen=MOST_MARKS)

    def enter(self, part: int) -> None:
        """Say that another part begins; what is said again costs nothing."""
        if part != self.part and threading.get_ident() == self._main:
            self.part = part
            self._marks.append(Mark(time.monotonic_ns(), time.thread_time_ns(), part))

    def taken(self) -> list[Mark]:
        """Return the marks since this was called before; none where there were too many to have kept them all."""
        found = []
        while self._marks:
            found.append(self._marks.popleft())
        return found if len(found) < MOST_MARKS else []


marks = StepMarks()
