"""The supervisor's event loop: who has its turn while thousands of connections have something."""

from __future__ import annotations

import asyncio
import socket

import pytest

from cordee.control.supervisor import event_loop
from cordee.control.supervisor.event_loop import run_passes

MANY = 4 * event_loop._AT_ONCE


@pytest.fixture
def pairs():
    made = [socket.socketpair() for _ in range(MANY)]
    for one in (end for pair in made for end in pair):
        one.setblocking(False)
    yield made
    for one in (end for pair in made for end in pair):
        one.close()


async def passes(each, until):
    """Let the loop run, and call something in each of its passes, until something holds."""
    loop, over = asyncio.get_running_loop(), asyncio.Event()

    def turn():
        each()
        over.set() if until() else loop.call_soon(turn)

    loop.call_soon(turn)
    await asyncio.wait_for(over.wait(), 60.0)


def test_a_pass_reads_some_of_many_connections_and_all_have_their_turn(pairs):
    read, since = [], [0]

    async def serve():
        loop, most = asyncio.get_running_loop(), []
        for at, (ours, theirs) in enumerate(pairs):
            loop.add_reader(ours, lambda at=at, ours=ours: read.append((at, ours.recv(10))))
            theirs.send(b"failed")

        def each():
            most.append(len(read) - since[0])
            since[0] = len(read)

        await passes(each, lambda: len(read) >= MANY)
        return max(most)

    assert run_passes(serve()) <= event_loop._AT_ONCE
    assert sorted(read) == [(at, b"failed") for at in range(MANY)]


def test_one_that_always_has_something_keeps_nobody_from_being_read(pairs):
    read = []

    async def serve():
        loop = asyncio.get_running_loop()
        for ours, theirs in pairs[:-1]:
            theirs.send(b"more")
            loop.add_reader(ours, lambda: None)  # leaves it there
        ours, theirs = pairs[-1]
        theirs.send(b"once")
        loop.add_reader(ours, lambda: read.append(ours.recv(10)))
        await passes(lambda: None, lambda: read)

    run_passes(serve())
    assert read == [b"once"]


def test_a_connection_that_is_given_up_in_the_meantime_is_not_read_and_its_number_may_serve_another(pairs):
    read = []

    async def serve():
        loop = asyncio.get_running_loop()
        last, _ = pairs[-1]
        number = last.fileno()

        def give_up():
            ours.recv(10)
            loop.remove_reader(number)
            last.close()
            other, another = socket.socketpair()
            pairs.append((other, another))
            loop.add_reader(other, lambda: read.append("the other, with nothing to read"))

        ours, _ = pairs[0]
        for mine, theirs in pairs:
            theirs.send(b"failed")
            loop.add_reader(mine, lambda mine=mine: mine.recv(10))
        loop.add_reader(number, lambda: read.append("given up"))
        loop.add_reader(ours, give_up)
        turns = []
        await passes(lambda: turns.append(1), lambda: len(turns) > 10)

    run_passes(serve())
    assert read == []


def test_what_is_left_is_cancelled_and_what_it_returns_and_raises_comes_out():
    ended = []

    async def lasts():
        try:
            await asyncio.sleep(600)
        finally:
            ended.append(True)

    async def serve():
        task = asyncio.ensure_future(lasts())
        await asyncio.sleep(0)
        assert not task.done()
        return 7

    assert run_passes(serve()) == 7
    assert ended == [True]

    async def fails():
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        run_passes(fails())
