"""What an agent asks of its machine."""

from __future__ import annotations

import asyncio
import os
import subprocess
import threading
import uuid
from pathlib import Path

import pytest

from cordee import wire
from cordee.control.agent.machine import NodeTasks
from cordee.core.errors import WireError
from cordee.machine.processes import tree
from cordee.runs.folder import RunFolder
from cordee.testing.daemons import wait_until


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


@pytest.mark.parametrize(
    "command",
    [
        ["env", "-i", "sleep", "60"],
        ["bash", "-c", "set -m; sleep 60; exit 7"],  # a shell that hears of children that stand still
    ],
)
def test_ranks_stand_still_with_all_below_them_and_go_on_as_if_they_had_not(command):
    owner = f"run-{uuid.uuid4().hex}/n1/1"
    environment = {**os.environ, tree.MARKER: f"{owner}/rank-1-0"}
    with subprocess.Popen(command, env=environment, start_new_session=True) as rank:
        try:
            assert wait_until(lambda: any(b"sleep" in _command(pid) for pid in _family(rank.pid)), 30.0)
            tasks = NodeTasks()
            frozen = tasks.freeze(owner, [rank.pid])
            assert set(frozen) == _family(rank.pid)
            assert wait_until(lambda: {tree.read_process(pid).state for pid in frozen} == {"T"}, 30.0)
            tasks.thaw(frozen)
            assert wait_until(lambda: {tree.read_process(pid).state for pid in frozen} == {"S"}, 30.0)
            assert rank.poll() is None
        finally:
            tree.kill_all(_family(rank.pid))
            tree.sweep(f"{owner}/")


def _family(pid: int) -> set[int]:
    return {pid} | tree.descendants([pid], tree.all_processes())


def _command(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()
