"""What `cordee watch` asks of a shared file system, counted."""

from __future__ import annotations

import time

import pytest

from cordee.faces.cli.watch import samples, state
from cordee.faces.cli.watch import screen as watching
from cordee.runs.lookout import WATCHED_PER_S, Lookout
from cordee.runs.news import NewsWriter, RunNews, news_file
from cordee.testing.made.runs import MadeRun, write_run
from cordee.testing.operations import counted


class Clock:
    now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def __getattr__(self, name: str):
        return getattr(time, name)


@pytest.mark.parametrize("gpus", [4, 256])
def test_watching_a_run_that_trains_asks_at_most_one_operation_a_second(tmp_path, monkeypatch, gpus):
    clock, folder = Clock(), write_run(tmp_path, MadeRun(gpus, 30))
    lines = (folder.journal / "supervisor-1.jsonl").read_text().splitlines(keepends=True)
    (folder.journal / "supervisor-1.jsonl").write_text("".join(line for line in lines if '"ended"' not in line))
    for module in (state, samples):
        monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(
        state, "Lookout", lambda folder, **more: Lookout(folder, **more, shared=True, clock=clock.monotonic)
    )
    writer, view = NewsWriter(news_file(folder.root)), watching.WatchScreen(folder)
    asked = turns = 0
    while clock.now < 1000.0 + 1200.0:
        turns += 1
        writer.tell(RunNews(1, 1, 1 + turns // 60, turns, {}))
        with counted() as operations:
            assert not view.read().ended
        if clock.now > 1000.0 + 300.0:
            asked += operations.total()
        clock.now += watching._REFRESH_S
    assert view.samples.rows
    assert asked / 900.0 <= WATCHED_PER_S
