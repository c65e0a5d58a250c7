"""How long tests wait for processes: as long as a machine needs that is busy now, and never without last words."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

_NOMINAL_S = 0.02  # a bare Python starts and ends in this on two idle cores
_LONGEST_S = 600.0  # below pytest's limit for a test, so that the last words are heard
_POLL_S = 0.02


class PatientWait:
    """A wait's time: what it takes on an idle machine, and as many times more as a bare Python takes now once that is over.

    Args:
        seconds: on an idle machine.
    """

    def __init__(self, seconds: float = 60.0) -> None:
        self._began = time.monotonic()
        self._seconds = seconds
        self._slow = False

    @property
    def seconds(self) -> float:
        """How long it is."""
        return self._seconds

    def over(self) -> bool:
        """Return whether nothing is to be waited for any more."""
        if time.monotonic() - self._began < self._seconds:
            return False
        if not self._slow:
            self._slow = True
            self._seconds = max(self._seconds, min(_LONGEST_S, self._seconds * slowness()))
        return time.monotonic() - self._began >= self._seconds


def slowness() -> float:
    """Return how many times as long as on an idle machine a bare Python takes to start and end now, at least 1."""
    began = time.monotonic()
    subprocess.run([sys.executable, "-I", "-S", "-c", ""], check=True, stdin=subprocess.DEVNULL)
    return max(1.0, (time.monotonic() - began) / _NOMINAL_S)


def wait_until(
    condition: Callable[[], Any], seconds: float = 60.0, *, said: Callable[[], object] = str, every_s: float = _POLL_S
) -> Any:
    """Return what a condition gives once it is true.

    Args:
        seconds: how long, on an idle machine.
        said: what the message shows when the time is over.

    Raises:
        TimeoutError: it is not true in time.
    """
    patience = PatientWait(seconds)
    while not (found := condition()):
        if patience.over():
            raise TimeoutError(f"not within {patience.seconds:.0f} s {said()}".rstrip())
        time.sleep(every_s)
    return found
