"""Children of the supervisor that speak JSON lines, with a real one: the sampler of sweeps."""

import asyncio
import os
import signal
from typing import Any

from cordee.control.supervisor.line_child import LineChild
from cordee.core.clock import monotonic
from cordee.systems.trials.node.study import SAMPLER
from cordee.systems.trials.space import space_of


def test_a_child_that_hangs_is_killed_and_begins_again_with_all_that_is_known() -> None:
    answers: list[dict[str, Any]] = []
    remarks: list[str] = []
    begin = {"sampler": "tpe", "seed": 0, "space": [one.document() for one in space_of({"x": "0.0..1.0"})]}
    begin |= {"goals": [["min", "a"]], "trials": []}

    async def live() -> int:
        child = LineChild(SAMPLER, lambda: begin, answers.append, remarks.append, {}, patience_s=240.0)
        child.start()
        while not answers:
            await asyncio.sleep(0.05)
        process = child._process
        assert process is not None
        os.kill(process.pid, signal.SIGSTOP)
        child.say({"ask": 7}, owed=1)
        child._patience_s = 1.0
        while child.starts < 2:
            child.second(monotonic())
            await asyncio.sleep(0.05)
        child._patience_s = 240.0
        while len(answers) < 2:
            await asyncio.sleep(0.05)
        child.say({"ask": 7}, owed=1)
        while len(answers) < 3:
            await asyncio.sleep(0.05)
        child.close()
        await child.gone()
        return child.starts

    assert asyncio.run(asyncio.wait_for(live(), 240)) == 2
    assert remarks == ["it was started again: it had no answer for 1 s"]
    assert answers[:2] == [{"ready": True}] * 2
    assert answers[2]["id"] == 7
