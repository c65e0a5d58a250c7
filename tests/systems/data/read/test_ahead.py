"""What is asked of storage early: how much, in which order, in which requests."""

from __future__ import annotations

import os
import threading
from itertools import pairwise

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cordee.machine.mounts import Mount
from cordee.systems.data.node.read.ahead import choice
from cordee.systems.data.node.read.ahead.read_ahead import ReadAhead, merged
from cordee.systems.data.node.read.packed.layout import PackedLayout, ShardPieces
from cordee.systems.data.node.read.packed.source import PackedSource
from cordee.systems.data.node.shards.index import open_index

SOON_S = 60


def pieces_of(spans):
    shards, begins, lengths = (numpy.array(column, numpy.int64) for column in zip(*spans, strict=True))
    return ShardPieces(numpy.arange(len(spans)), shards, begins, begins + lengths)


SPANS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3000), st.integers(0, 400)), min_size=1, max_size=60)


@settings(max_examples=200)
@given(SPANS, st.sampled_from([0, 16, 256]), st.sampled_from([64, 500, 1 << 62]))
def test_requests_hold_all_pieces_and_little_else(spans, gap, most):
    pieces = pieces_of(spans)
    order, starts, begins, ends = merged(pieces, gap, most)
    assert sorted(order.tolist()) == list(range(len(spans)))
    bounds = [*starts.tolist(), len(order)]
    asked = wanted = 0
    for number, (begin, end) in enumerate(zip(begins.tolist(), ends.tolist(), strict=True)):
        inside = order[bounds[number] : bounds[number + 1]].tolist()
        assert len({spans[piece][0] for piece in inside}) == 1
        covered = set()
        for piece in inside:
            _, start, length = spans[piece]
            assert begin <= start
            assert start + length <= end
            covered.update(range(start, start + length))
        assert end - begin <= most or len(inside) == 1
        asked, wanted = asked + end - begin, wanted + len(covered)
    total = sum(length for _, _, length in spans)
    assert asked - wanted <= total // 4


class Noting(ReadAhead):
    """Notes the windows and lets the next one be asked for only when it is told to."""

    def __init__(self, layout, limit_bytes):
        super().__init__(layout, limit_bytes)
        self.windows = []
        self.asked = threading.Semaphore(0)

    def _ask(self, first, window):
        pieces = self._pieces(window)
        self.windows.append((first, len(window), int((pieces.ends - pieces.begins).sum())))
        self.asked.release()


@pytest.fixture
def noting(tmp_path, pack):
    samples = [{"key": str(number), "bin": bytes(1000)} for number in range(400)]
    index = open_index(pack(tmp_path / "set", samples, shard_samples=200))
    opened = []

    def make(limit_bytes):
        opened.append(Noting(PackedLayout(index, index.fields), limit_bytes))
        return opened[-1]

    yield make
    for each in opened:
        each.close()


def test_windows_stay_within_the_limit_and_follow_what_is_read(noting):
    ahead = noting(100_000)
    samples = numpy.arange(400)
    ahead.expect(samples)
    assert ahead.asked.acquire(timeout=SOON_S)
    assert ahead.asked.acquire(timeout=SOON_S)
    assert ahead.windows == [(0, 50, 50_000), (50, 50, 50_000)]
    assert not ahead.asked.acquire(blocking=False)
    assert ahead.reached(samples[:50]) == 0
    assert ahead.asked.acquire(timeout=SOON_S)
    assert ahead.windows[2:] == [(100, 50, 50_000)]


def test_windows_grow_so_that_more_lies_side_by_side(noting, monkeypatch):
    monkeypatch.setattr("cordee.systems.data.node.read.ahead.read_ahead.FIRST_BYTES", 10_000)
    ahead = noting(200_000)
    ahead.expect(numpy.arange(400))
    for _ in range(4):
        assert ahead.asked.acquire(timeout=SOON_S)
    assert [count for _, count, _ in ahead.windows] == [10, 20, 40, 80]


def test_what_was_read_meanwhile_is_not_asked_for(noting):
    ahead = noting(100_000)
    ahead.expect(numpy.arange(400))
    assert ahead.asked.acquire(timeout=SOON_S)
    assert ahead.asked.acquire(timeout=SOON_S)
    assert ahead.reached(numpy.arange(250)) == 0
    assert ahead.asked.acquire(timeout=SOON_S)
    assert ahead.windows[2][0] == 250


def test_other_samples_than_expected_forget_what_is_expected(noting):
    ahead = noting(100_000)
    ahead.expect(numpy.arange(10))
    assert ahead.reached(numpy.arange(3, 5)) is None
    assert ahead.reached(numpy.arange(3)) is None
    ahead.expect(numpy.arange(20, 30))
    assert ahead.reached(numpy.arange(20, 25)) == 10
    assert ahead.reached(numpy.arange(25, 30)) == 15


def test_the_kernel_is_told_in_the_order_of_the_files_and_not_what_it_has(tmp_path, pack, monkeypatch):
    samples = [{"key": str(number), "bin": bytes(200_000)} for number in range(40)]
    source = PackedSource(pack(tmp_path / "set", samples), ahead="advise")
    order = numpy.random.default_rng(0).permutation(40)[:20]
    told = []
    source.read(order[:1])  # shards are opened where the test sees it
    monkeypatch.setattr(os, "preadv", cold)
    monkeypatch.setattr(os, "posix_fadvise", lambda file, begin, length, advice: told.append((begin, length)))
    source._ahead._ask(0, order)
    assert sum(length for _, length in told) == source.counts.advised_bytes
    assert 20 * 200_000 <= source.counts.advised_bytes <= 25 * 200_000
    descents = sum(before[0] > after[0] for before, after in pairwise(told))
    assert descents <= 3  # one for each change of the shard
    told.clear()
    monkeypatch.setattr(os, "preadv", lambda file, buffers, offset, flags: 1)
    source._ahead._ask(0, order)
    assert told == []
    source.close()


def cold(file, buffers, offset, flags):
    """Answer as os.preadv does with RWF_NOWAIT for what is not in memory."""
    raise BlockingIOError


@pytest.mark.parametrize(
    ("kind", "way"), [("ext4", "advise"), ("xfs", "advise"), ("lustre", "fetch"), ("nfs4", "fetch"), ("tmpfs", "none")]
)
def test_the_kind_of_file_system_decides_how_storage_is_asked(monkeypatch, kind, way):
    monkeypatch.setattr(
        choice, "read_mounts", lambda root: [Mount("/", "zfs", "x", True), Mount("/data", kind, "x", True)]
    )
    assert choice.way_for("/data/set") == way
    assert choice.way_for("/elsewhere") == "fetch"
    assert choice.way_for("s3://bucket/set") == "fetch"


def test_the_ranks_of_a_node_share_its_free_memory(monkeypatch):
    class Memory:
        def read(self):
            from cordee.machine.memory import MemoryReading

            return MemoryReading(64 << 30, 8 << 30, "machine")

    monkeypatch.setattr(choice, "MemorySource", Memory)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "1")
    assert choice.limit_for("advise", None) == 2 << 30
    assert choice.limit_for("fetch", None) == 512 << 20
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "8")
    assert choice.limit_for("advise", None) == 256 << 20
    assert choice.limit_for("fetch", None) == 64 << 20
    assert choice.limit_for("fetch", 5000) == 5000
