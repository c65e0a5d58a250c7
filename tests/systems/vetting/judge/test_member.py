"""Waiting for a node's answer: what the network keeps back is not late."""

from __future__ import annotations

import asyncio
from typing import Any

from cordee.systems.vetting.node.judge.node_link import Question, VettedNode, within
from cordee.wire.messages import FreePorts, Port


def test_an_answer_that_a_broken_connection_kept_back_is_not_late() -> None:
    async def wait() -> list[Any]:
        now = asyncio.get_running_loop().time
        began = now()
        answers = [asyncio.get_running_loop().create_future() for _ in range(2)]
        for answer in answers:
            asyncio.get_running_loop().call_later(0.4, answer.set_result, "an answer")
        away = within(answers[0], 0.1, lambda: min(now() - began, 0.35))
        return await asyncio.gather(away, within(answers[1], 0.1))

    assert asyncio.run(wait()) == ["an answer", None]


def test_an_answer_to_an_earlier_question_is_not_taken_for_that_to_a_later_one() -> None:
    async def ask() -> Any:
        asked: list[Question] = []

        def send(question: Question) -> bool:
            asked.append(question)
            ports = (20000 + len(asked),)
            for one in asked:
                member.message(FreePorts(one.id, ports, ""), b"")
                ports = (1,)
            return True

        member = VettedNode("n", send, "127.0.0.1")
        first = await member.free_port()
        asked[0] = Port("of somebody else", "127.0.0.1", 1)
        return first, await member.free_port()

    assert asyncio.run(ask()) == (20001, 1)


def test_a_node_that_is_gone_is_said_at_once() -> None:
    async def ask() -> Any:
        member = VettedNode("n", lambda message: False, "127.0.0.1")
        return await member.free_port(), await member.clock(), await member.check([{"check": "host.load"}], 60.0)

    port, clock, results = asyncio.run(ask())
    assert (port, clock) == (None, None)
    assert [(result["status"], result["cause"]) for result in results] == [("unknown", "silent")]
