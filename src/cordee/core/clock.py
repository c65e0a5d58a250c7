"""The clocks that the control plane goes by: this machine's, unless a simulation puts its own in their place."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_clocks: Any = time


def monotonic() -> float:
    """Return seconds that only grow, the same as `loop.time()` of the event loop that runs."""
    return float(_clocks.monotonic())


def unix_s() -> float:
    """Return UTC epoch seconds, as the wall clock has them, right or wrong."""
    return float(_clocks.time())


def pause(seconds: float) -> None:
    """Do nothing for so long: the thread stands still, and all that it would do meanwhile."""
    _clocks.sleep(seconds)


@contextmanager
def clocks_of(clocks: Any) -> Iterator[None]:
    """Go by the functions `monotonic`, `time` and `sleep` of something else for the time of the block."""
    global _clocks
    before, _clocks = _clocks, clocks
    try:
        yield
    finally:
        _clocks = before
