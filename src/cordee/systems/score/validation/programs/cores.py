"""Workloads without a GPU: what the CPU's counters must say of them is known as well."""

from __future__ import annotations

import os
import time
from typing import Any

from cordee.systems.score.validation.programs.steady import Steady

_SLICE_S = 0.02


def busy(torch: Any, steady: Steady, processes: int = 0) -> dict[str, float]:
    """Keep `processes` processes busy (0: one per CPU that may be used), each with one thread."""
    count = processes or len(os.sched_getaffinity(0))
    before = os.times()
    steady.begin()
    children = [_burner(steady.until) for _ in range(count)]
    while steady.going:
        time.sleep(max(0.0, steady.until - time.monotonic()))
    for child in children:
        os.waitpid(child, 0)
    after = os.times()
    cpu_s = after.children_user + after.children_system - before.children_user - before.children_system
    used = cpu_s / steady.elapsed_s
    return {"cpu_cores": used, "breadth": used / len(os.sched_getaffinity(0)) / max(1e-9, min(1.0, used))}


def _burner(until: float) -> int:
    child = os.fork()
    if child:
        return child
    try:
        while time.monotonic() < until:
            _burn(_SLICE_S)
    finally:
        os._exit(0)


def duty(torch: Any, steady: Steady, share: float = 0.5) -> dict[str, float]:
    """Use `share` (0-1] of one core, whatever else the machine does: what was lost to others is made up for."""
    used_before = time.process_time()
    steady.begin()
    started = time.monotonic()
    while steady.going:
        if time.process_time() - used_before < share * (time.monotonic() - started):
            _burn(_SLICE_S * share)
        else:
            time.sleep(_SLICE_S * (1.0 - share))
    return {"cpu_cores": (time.process_time() - used_before) / steady.elapsed_s}


def pause(torch: Any, steady: Steady) -> dict[str, float]:
    """Sleep."""
    while steady.going:
        time.sleep(max(0.0, steady.until - time.monotonic()))
    return {}


def _burn(cpu_s: float) -> None:
    until = time.process_time() + cpu_s
    value = 1
    while time.process_time() < until:
        for _ in range(200):
            value = value * 1103515245 + 12345 & 0x7FFFFFFF
