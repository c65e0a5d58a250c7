"""What an agent asks of its machine."""

from __future__ import annotations

import asyncio
import threading

import pytest

from cordee import wire
from cordee.control.agent.machine import NodeTasks
from cordee.core.errors import WireError
from cordee.runs.folder import RunFolder


def test_an_agent_that_looks_for_its_supervisor_on_a_disk_that_stands_still_goes_on_with_all_else(
    tmp_path, monkeypatch
):
    answers = threading.Event()

    def read(path):
        answers.wait(10)
        raise WireError("cannot read the rendezvous file")

    async def look():
        looking = asyncio.ensure_future(
            NodeTasks().connect(RunFolder(tmp_path), "n0", on_message=lambda *_: None, on_close=lambda *_: None)
        )
        await asyncio.sleep(0.05)
        waits = not looking.done()
        answers.set()
        with pytest.raises(WireError, match="cannot read"):
            await looking
        return waits

    monkeypatch.setattr(wire, "read_rendezvous", read)
    assert asyncio.run(look())
