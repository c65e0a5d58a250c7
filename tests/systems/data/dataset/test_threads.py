"""How many threads decode, and what becomes of freed memory."""

from __future__ import annotations

import os
import threading
import time

import pytest

from cordee.systems.data.node.read.batches.batches import BatchGrowth, Work, blocks
from cordee.systems.data.node.read.batches.memory import keep_freed_memory
from cordee.systems.data.node.read.batches.prefetcher import BatchPrefetcher, _Queue
from cordee.systems.data.node.read.order.position import EpochCut, RankShares, SampleOrder
from cordee.systems.data.node.read.order.ranks import usable_threads


@pytest.mark.parametrize(
    ("bound_to", "processors", "ranks", "expected"),
    [(8, 8, "", 8), (8, 8, "4", 2), (4, 64, "4", 4), (64, 64, "1", 16), (1, 64, "8", 1), (2, 2, "8", 1)],
)
def test_a_rank_decodes_in_the_processors_that_are_its_own(monkeypatch, bound_to, processors, ranks, expected):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(bound_to)))
    monkeypatch.setattr(os, "cpu_count", lambda: processors)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", ranks)
    assert usable_threads() == expected


def test_freed_memory_is_kept_unless_the_user_has_set_the_allocator(monkeypatch):
    for name in ("LD_PRELOAD", "GLIBC_TUNABLES", "MALLOC_TRIM_THRESHOLD_"):
        monkeypatch.delenv(name, raising=False)
    assert keep_freed_memory.__wrapped__() is True
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "1000000")
    assert keep_freed_memory.__wrapped__() is False


def test_more_is_read_ahead_once_the_loop_had_to_wait_and_never_more_than_allowed():
    queue = _Queue(100 << 20, BatchGrowth())
    begun, limits = queue._limit, []
    for _ in range(4):
        loop = threading.Thread(target=queue.take)
        before = queue._limit
        loop.start()
        deadline = time.monotonic() + 60
        while queue._limit == before < (100 << 20) and time.monotonic() < deadline:
            time.sleep(0.001)
        queue.put([], 0)
        loop.join()
        limits.append(queue._limit)
    assert limits == [2 * begun, 4 * begun, 100 << 20, 100 << 20]
    queue.put([], 0)
    queue.take()
    assert _Queue(1 << 20, BatchGrowth())._limit == 1 << 20


def test_of_tiny_samples_a_number_of_batches_is_made_ahead_not_what_fits_into_memory(numbers):
    made = list(blocks(numbers(5000), SampleOrder(5000), RankShares(EpochCut(0, 5000, 8, 1), 0)))
    assert sum(len(block.batches) for block in made) == 625
    assert all(block.bytes == len(block.batches) * (256 << 10) for block in made)
    assert all(block.mean_bytes < 200 for block in made)


@pytest.mark.parametrize("decode", [None, str])
def test_a_loop_that_is_let_go_does_not_wait_for_threads_that_cannot_end_just_now(numbers, decode):
    before = set(threading.enumerate())
    source = numbers(4000)
    read = blocks(source, SampleOrder(4000, 0, True), RankShares(EpochCut(0, 4000, 8, 1, "short"), 0))
    loops = [BatchPrefetcher(read, source, Work(decode, None, list), 2, 1000)]
    next(loops[0])
    done = threading.Event()

    def let_go():
        with threading._active_limbo_lock:  # every thread needs it to end
            loops.clear()
        done.set()

    threading.Thread(target=let_go, daemon=True).start()
    assert done.wait(60)
    end = time.monotonic() + 60
    while set(threading.enumerate()) - before:
        assert time.monotonic() < end
        time.sleep(0.02)
