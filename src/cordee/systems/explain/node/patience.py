"""How much longer than on an idle machine things take that a hang waits for: dumps, the collecting process, the judgement."""

from __future__ import annotations

import os
from typing import Optional

from cordee.machine import sysfs

MOST_S = 60.0
_MOST_TIMES = 8.0


def times_longer(ranks: int = 0, proc: str = "/proc") -> float:
    """Return how many times as long a process has to wait here, at least 1; `ranks` of them shall answer at the same time."""
    load = (sysfs.text(f"{proc}/loadavg", 128) or "0 0 0").split()[0]
    crowd = max(float(load) / (os.cpu_count() or 1), ranks / len(os.sched_getaffinity(0)))
    return crowded(crowd, _pressure(sysfs.text(f"{proc}/pressure/cpu", 256) or ""))


def crowded(crowd: float, pressure: Optional[float]) -> float:
    """Return how many times as long as alone a process waits beside so many for each core, between 1 and 8.

    Args:
        crowd: processes that want to run, for each core.
        pressure: the share of time in which one of them had to wait; None: not known.
    """
    return min(_MOST_TIMES, max(1.0, crowd * (1.0 if pressure is None else pressure)))


def patience_s(seconds: float, times: float) -> float:
    """Return how long to wait for what takes so many seconds at most on an idle machine."""
    return min(max(seconds, MOST_S), seconds * times)


def _pressure(told: str) -> Optional[float]:
    for word in told.split("\n", 1)[0].split():
        if word.startswith("avg10="):
            return float(word[6:]) / 100
    return None
