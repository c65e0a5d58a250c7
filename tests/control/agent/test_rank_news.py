"""What an agent tells of its ranks: those that start or end together in one message, and in the order in which it happened."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from cordee.control.agent.ranks.attempt import NodeAttempt
from cordee.machine.tasks.task import TaskExit
from cordee.wire.messages import EndedRank, RanksEnded, RanksStarted, StartedRank

WORLD = SimpleNamespace(attempt=2, node="n1", local_ranks=range(4, 8))


class Told:
    """An attempt of four ranks, and what is told of it, in order."""

    def __init__(self):
        self.said = []
        fake = SimpleNamespace(
            tasks=None,
            run_task=None,
            close=lambda *_: None,
            take_back=lambda *_: None,
            explain=lambda ended, _: ended,
            rank_ended=lambda: self.said.append("telemetry"),
            news=self.said.append,
            write=lambda *_: None,
        )
        self.attempt = NodeAttempt(WORLD, *[fake] * 7)

    def starts(self, *ranks):
        for rank in ranks:
            self.attempt.rank_started(WORLD, rank, 100 + rank)

    def ends(self, *ranks):
        for rank in ranks:
            self.attempt.rank_ended(WORLD, rank, TaskExit(f"rank-{rank}", 1, None, "exited", 1.0, "no"))


@pytest.fixture
def told():
    return Told()


def ended(rank):
    return EndedRank(rank, 1, None, "exited", 1.0, "no")


def test_ranks_that_start_or_end_together_are_told_of_in_one_message(told):
    async def run():
        told.starts(4, 5, 6, 7)
        await asyncio.sleep(0)
        told.ends(4, 5, 6, 7)
        await asyncio.sleep(0)

    asyncio.run(run())
    started = RanksStarted(2, tuple(StartedRank(rank, 100 + rank) for rank in range(4, 8)))
    assert [one for one in told.said if one != "telemetry"] == [started, RanksEnded(2, tuple(map(ended, range(4, 8))))]
    assert told.said[-1] != "telemetry"  # what a rank logged is on its way before it is told that it has ended


def test_what_happens_to_ranks_in_turn_is_told_in_that_order(told):
    async def run():
        told.starts(4)
        told.ends(4)
        told.starts(5)
        await asyncio.sleep(0)

    asyncio.run(run())
    assert [one for one in told.said if one != "telemetry"] == [
        RanksStarted(2, (StartedRank(4, 104),)),
        RanksEnded(2, (ended(4),)),
        RanksStarted(2, (StartedRank(5, 105),)),
    ]
