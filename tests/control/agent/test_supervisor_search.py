"""How an agent looks for its supervisor."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from cordee.control.agent.supervisor_search import SupervisorSearch, pauses


class Answers:
    """A machine on which a supervisor can always be connected."""

    async def connect(self, folder, node, **handlers):
        return object()

    async def has(self, folder):
        return True


def connections(orphan_s: float, most: int, *, led: bool) -> int:
    """Return how often an agent connects before it gives up, or `most`, if each supervisor leads it, or sends it away."""

    async def look() -> int:
        seeking = SupervisorSearch(None, "n1", 2, Answers(), orphan_s, None)
        for count in range(most):
            if await seeking.connect(asyncio.Event()) is None:
                return count
            if led:
                seeking.found()
        return most

    return asyncio.run(look())


def test_an_agent_that_every_supervisor_sends_away_comes_ever_more_rarely_and_gives_up():
    assert 1 <= connections(0.3, 1000, led=False) < 20


def test_an_agent_that_loses_a_supervisor_that_led_it_looks_for_the_next_at_once():
    assert connections(0.0, 1000, led=True) == 1000


@pytest.mark.parametrize(("nodes", "at_first", "later"), [(500, 21, 11), (10_000, 21, 11), (2, 100, 90)])
def test_the_more_agents_there_are_the_more_rarely_each_looks(nodes, at_first, later):
    for node in range(100):
        minutes: Counter[int] = Counter()
        now = 0.0
        for pause_s in pauses(f"n{node}", nodes):
            now += pause_s
            if now > 600.0:
                break
            minutes[int(now // 60)] += 1
        assert minutes[0] <= at_first
        assert max(minutes[minute] for minute in range(1, 10)) <= later
