"""How an agent looks for its supervisor."""

from __future__ import annotations

import asyncio

from cordee.control.agent.supervisor_search import SupervisorSearch


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
