"""Passes of a supervisor's loop: how much work each takes in, counted, and that everybody has their turn."""

from __future__ import annotations

import asyncio
import socket

import pytest

from cordee.control.supervisor.timing.passes import SlicedSelector, run_in_slices


class CountingLoop(asyncio.SelectorEventLoop):
    """A loop that is told of some files at a time, and counts its passes."""

    def __init__(self, most):
        super().__init__(SlicedSelector(most))
        self.passes = 0

    def _run_once(self):
        self.passes += 1
        super()._run_once()


@pytest.fixture
def loop():
    loop = CountingLoop(10)
    yield loop
    loop.close()


@pytest.fixture
def pairs():
    pairs = [socket.socketpair() for _ in range(45)]
    yield pairs
    for pair in pairs:
        for end in pair:
            end.close()


def test_a_pass_reads_a_part_of_what_is_ready_and_nothing_is_left_out_or_read_twice(loop, pairs):
    read = []

    def take(index):
        pairs[index][0].recv(100)
        read.append((loop.passes, index))
        if len(read) == len(pairs):
            loop.stop()

    for index, (near, far) in enumerate(pairs):
        loop.add_reader(near, take, index)
        far.send(b"failed")
    loop.run_forever()
    a_pass = [sum(at == number for at, _ in read) for number in range(1, loop.passes + 1)]
    assert max(a_pass) <= 10
    assert sorted(index for _, index in read) == list(range(len(pairs)))
    assert [at for at, _ in read] == sorted(at for at, _ in read)


def test_who_speaks_all_the_time_does_not_keep_the_others_from_their_turn(loop, pairs):
    read = []

    def take(index):
        read.append(index)
        if set(read) == set(range(len(pairs))):
            loop.stop()

    for index, (near, far) in enumerate(pairs):  # nobody reads: all are ready, always
        loop.add_reader(near, take, index)
        far.send(b"failed")
    loop.call_later(30.0, loop.stop)
    loop.run_forever()
    assert set(read) == set(range(len(pairs)))
    assert max(map(read.count, read)) <= 2


def test_timers_have_their_turn_between_two_parts(loop, pairs):
    seen = []

    def take(index):
        pairs[index][0].recv(100)
        seen.append("read")
        loop.call_soon(seen.append, "soon")

    for index, (near, far) in enumerate(pairs):
        loop.add_reader(near, take, index)
        far.send(b"failed")
    loop.call_later(0.3, loop.stop)
    loop.run_forever()
    assert seen.count("read") == seen.count("soon") == len(pairs)
    assert seen.index("soon") <= 10


def test_a_file_that_can_be_written_or_whose_other_end_is_gone_is_told_of(loop):
    near, far = socket.socketpair()
    seen = []
    loop.add_writer(near, lambda: (seen.append("write"), loop.remove_writer(near)))
    loop.add_reader(near, lambda: (seen.append(near.recv(10)), loop.stop()))
    loop.call_later(0.05, far.close)
    loop.run_forever()
    assert seen == ["write", b""]
    loop.remove_reader(near)
    near.close()


def test_what_runs_in_slices_ends_as_asyncio_run_does():
    ended = []

    async def main():
        async def other():
            try:
                await asyncio.sleep(60.0)
            finally:
                ended.append("other")

        running = asyncio.ensure_future(other())
        process = await asyncio.create_subprocess_exec("true")
        await asyncio.sleep(0)
        assert not running.done()
        return await process.wait(), await asyncio.get_running_loop().run_in_executor(None, sum, (1, 2))

    assert run_in_slices(main()) == (0, 3)
    assert ended == ["other"]
    with pytest.raises(ZeroDivisionError):
        run_in_slices(_fail())


async def _fail():
    return 1 // 0
