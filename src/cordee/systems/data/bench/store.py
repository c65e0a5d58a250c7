"""What an object store gives without a loader: large ranges read by several threads."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from cordee.wire.stores import Stored, open_store

THREADS = 8
_RANGE_BYTES = 8 << 20


def store_rate(address: str, seconds: float) -> float | None:
    """Return bytes per second of reading the objects below an address, 8 MiB at a time by 8 threads.

    Returns:
        None where there is nothing to read.

    Raises:
        DataError: the store refuses or does not answer.
    """
    store = open_store(address)
    objects = [found for found in store.list() if found.bytes]
    if not objects:
        return None
    ranges, guard = _ranges(objects), threading.Lock()
    began = time.perf_counter()
    until = began + seconds

    def read(_: int) -> int:
        total = 0
        while time.perf_counter() < until:
            with guard:
                name, start, length = next(ranges)
            total += len(store.read(name, start, length))
        return total

    with ThreadPoolExecutor(THREADS) as pool:
        total = sum(pool.map(read, range(THREADS)))
    return total / (time.perf_counter() - began)


def _ranges(objects: list[Stored]) -> Iterator[tuple[str, int, int]]:
    """Give the ranges of all objects, the largest first, again and again."""
    largest = sorted(objects, key=lambda found: -found.bytes)
    for found in itertools.cycle(largest):
        for start in range(0, found.bytes, _RANGE_BYTES):
            yield found.name, start, min(_RANGE_BYTES, found.bytes - start)
