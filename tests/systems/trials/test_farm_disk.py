"""A dispatcher whose disk is full for a while: nothing starts that is not in the journal, and all goes on once there is room."""

import asyncio
import errno
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from cordee.control.supervisor.decisions.nodes import Node
from cordee.control.supervisor.watchers import WatchedRun
from cordee.core.clock import monotonic
from cordee.job.submit.prepare import create_run, prepare
from cordee.runs.journal import JournalWriter, read_journal
from cordee.runs.lane import Lane
from cordee.runs.plan import read_plan
from cordee.systems.trials.node.dispatcher import FarmDispatcher
from cordee.wire.messages import PoolNews
from support.disks import FaultyDisk


def test_tasks_start_once_the_disk_has_room_for_the_journal_again(tmp_path: Path) -> None:
    job = tmp_path / "job"
    job.mkdir()
    (job / "cordee.toml").write_text('name = "farm"\nrun = ["sh", "-c", "{line}"]\n[farm]\nfile = "tasks.txt"\n')
    (job / "tasks.txt").write_text("true\ntrue\n")
    folder = create_run(prepare(str(job), "local", {}, tmp_path / "runs"))
    node, disk, orders = Node("local-0"), FaultyDisk(), []

    def order(to: Node, message: Any, body: bytes = b"") -> bool:
        orders.extend(task["id"] for task in json.loads(body))
        return True

    async def live() -> None:
        attempt = SimpleNamespace(number=1, nodes=[node])
        journal, nothing = JournalWriter(folder.journal, "supervisor-1", 1), lambda event: None
        about = (read_plan(folder), folder, {"local-0": node}, journal, order, lambda: attempt)
        dispatcher = FarmDispatcher(WatchedRun(*about, nothing, nothing, Lane))  # type: ignore[arg-type]
        dispatcher._journal._disk = disk
        full = disk.fail("write", errno.ENOSPC, "*/tasks/journal/*", times=-1)
        dispatcher.pool_news(node, PoolNews(1), b'{"room": [2, 0, 1000]}')
        for _ in range(5):
            dispatcher.second(monotonic())
            await asyncio.sleep(0.05)
        assert dispatcher._journal.last_error is not None
        assert orders == []
        disk.faults.remove(full)
        while not orders:
            dispatcher.second(monotonic())
            await asyncio.sleep(0.05)

    asyncio.run(asyncio.wait_for(live(), 30))
    assert orders == [0, 1]
    given = [event["tasks"] for event in read_journal(folder.root / "tasks/journal")]
    assert given == [[[0, 1], [1, 1]]]
