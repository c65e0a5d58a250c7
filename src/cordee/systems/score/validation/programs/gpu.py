"""Workloads of one GPU. Each returns what it knows of itself: bytes per second, the share of SMs that it took, ..."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from typing import Any

from cordee.machine.probes.common import Obstacle
from cordee.systems.score.validation.programs.kernels import WARP, Kernels
from cordee.systems.score.validation.programs.steady import Steady

_MATRIX = 16384
_BATCH_NS = 20_000_000
_TRIAD_BYTES = 8_000_000_000
_COPY_BYTES = 256 << 20
_CHASE_COUNT = 1 << 27  # numbers of 4 bytes: far more than any cache holds


class InFlight:
    """Keeps two batches of work on the GPU and waits without spinning, so that the CPU looks as idle as it is."""

    def __init__(self, torch: Any) -> None:
        self._events = [torch.cuda.Event(blocking=True) for _ in range(2)]
        self._used = [False, False]
        self._turn = 0

    def put(self, batch: Callable[[], Any]) -> None:
        """Start a batch once the one before the last has ended."""
        event = self._events[self._turn]
        if self._used[self._turn]:
            event.synchronize()
        batch()
        event.record()
        self._used[self._turn] = True
        self._turn ^= 1

    def wait(self) -> None:
        """Wait for what was started."""
        for event, used in zip(self._events, self._used, strict=True):
            if used:
                event.synchronize()


def gemm(
    torch: Any, steady: Steady, size: int = _MATRIX, duty: float = 1.0, period_s: float = 0.25
) -> dict[str, float]:
    """Multiply bf16 matrices for `duty` of the time (0-1], in bursts when it is below 1."""
    multiply = multiplication(torch, size)
    if duty < 1.0:
        return _in_bursts(torch, steady, multiply, duty, period_s)
    flight, count = InFlight(torch), 0
    for _ in range(4):
        flight.put(multiply)
    while steady.going:
        flight.put(multiply)
        count += 1
    flight.wait()
    return {"flops": 2.0 * size**3 * count / steady.elapsed_s}


def multiplication(torch: Any, size: int, kind: str = "bfloat16") -> Callable[[], Any]:
    """Return what starts one multiplication of random square matrices."""
    a, b = (torch.randn(size, size, device="cuda", dtype=getattr(torch, kind)) for _ in range(2))
    out = torch.empty_like(a)
    return lambda: torch.mm(a, b, out=out)


def _in_bursts(torch: Any, steady: Steady, work: Callable[[], Any], duty: float, period_s: float) -> dict[str, float]:
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True, blocking=True)

    def burst(count: int) -> float:
        """Return the seconds that the GPU took."""
        begin.record()
        for _ in range(count):
            work()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) / 1e3

    burst(4)
    count = max(1, round(duty * period_s / (burst(8) / 8)))
    busy_s = 0.0
    steady.begin()
    until = time.monotonic()
    while steady.going:
        took_s = burst(count)
        busy_s += took_s
        until += took_s / duty  # a late wake-up is made up for by the next pause
        time.sleep(max(0.0, until - time.monotonic()))
    return {"duty": busy_s / steady.elapsed_s}


def triad(torch: Any, steady: Steady) -> dict[str, float]:
    """Compute a = b + 0.5 c over three arrays of 8 GB in all, or of half the free memory."""
    free, _ = torch.cuda.mem_get_info()
    count = int(min(_TRIAD_BYTES, free // 2)) // 12
    a, b, c = (torch.ones(count, device="cuda") for _ in range(3))
    flight, turns = InFlight(torch), 0
    flight.put(lambda: torch.add(b, c, alpha=0.5, out=a))
    while steady.going:
        flight.put(lambda: torch.add(b, c, alpha=0.5, out=a))
        turns += 1
    flight.wait()
    return {"bytes_per_second": 12.0 * count * turns / steady.elapsed_s}


def hold(torch: Any, steady: Steady, share: float = 1.0, warps: int = 1) -> dict[str, float]:
    """Have `warps` warps held by each of a `share` of the SMs, and next to nothing done."""
    kernels = Kernels(torch)
    blocks_each = 1 + (warps * WARP - 1) // 1024
    if warps > kernels.warps_per_multiprocessor or warps % blocks_each:
        raise Obstacle(f"an SM of this GPU holds {kernels.warps_per_multiprocessor} warps, not {warps}", "absent")
    taken = max(1, round(share * kernels.multiprocessors))
    threads = warps // blocks_each * WARP
    flight = InFlight(torch)

    def batch() -> None:
        duration = ctypes.c_uint64(_BATCH_NS)
        kernels.launch("hold", taken * blocks_each, threads, duration, blocks_per_multiprocessor=blocks_each)

    flight.put(batch)
    while steady.going:
        flight.put(batch)
    known = {
        "sm_ratio": taken / kernels.multiprocessors,
        "occupancy_ratio": warps / kernels.warps_per_multiprocessor * taken / kernels.multiprocessors,
    }
    flight.wait()
    return known


def fma(torch: Any, steady: Steady, bits: int = 32) -> dict[str, float]:
    """Do nothing but fused multiply-adds of 32 or 64 bits, on all SMs, in registers."""
    kernels = Kernels(torch)
    out = torch.zeros(1, device="cuda", dtype=torch.float64)
    blocks = 2 * kernels.multiprocessors

    def start(rounds: int) -> None:
        kernels.launch(f"fma{bits}", blocks, 1024, out, ctypes.c_uint64(rounds))

    return _timed(torch, steady, start, 128.0 * 2 * 1024 * blocks)


def chase(torch: Any, steady: Steady, count: int = _CHASE_COUNT) -> dict[str, float]:
    """Follow pointers through 512 MB of memory with four warps on each SM: each load waits for the one before."""
    kernels = Kernels(torch)
    order = torch.randperm(count, device="cuda")
    ring = torch.empty(count, device="cuda", dtype=torch.int32)
    ring[order] = torch.roll(order, -1).to(torch.int32)
    del order

    def start(rounds: int) -> None:
        words = (ctypes.c_uint64(rounds), ctypes.c_uint32(count))
        kernels.launch("chase", kernels.multiprocessors, 4 * WARP, ring, *words, blocks_per_multiprocessor=1)

    return _timed(torch, steady, start, 4.0 * kernels.multiprocessors)


def _timed(torch: Any, steady: Steady, start: Callable[[int], None], work: float) -> dict[str, float]:
    """Run a kernel over and over, with as many rounds as take 20 ms; return operations per second of `work` a round."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start(64)
    begin.record()
    start(1024)
    end.record()
    end.synchronize()
    rounds = max(64, int(1024 * _BATCH_NS / 1e6 / max(1e-3, begin.elapsed_time(end))))
    flight, turns = InFlight(torch), 0
    while steady.going:
        flight.put(lambda: start(rounds))
        turns += 1
    flight.wait()
    return {"operations_per_second": work * rounds * turns / steady.elapsed_s}


def copies(torch: Any, steady: Steady, size_bytes: int = _COPY_BYTES) -> dict[str, float]:
    """Copy pinned host memory to the GPU over and over."""
    source = torch.ones(size_bytes // 4).pin_memory()
    target = torch.empty(size_bytes // 4, device="cuda")
    flight, count = InFlight(torch), 0
    flight.put(lambda: target.copy_(source, non_blocking=True))
    while steady.going:
        flight.put(lambda: target.copy_(source, non_blocking=True))
        count += 1
    flight.wait()
    return {"bytes_per_second": float(size_bytes) * count / steady.elapsed_s}


def tiny(torch: Any, steady: Steady, elements: int = 1) -> dict[str, float]:
    """Start kernels on a handful of numbers as quickly as Python can."""
    values = torch.zeros(elements, device="cuda")
    count = 0
    while steady.going:
        for _ in range(1000):
            values.add_(1.0)
        count += 1000
    torch.cuda.synchronize()
    return {"launches_per_second": count / steady.elapsed_s}
