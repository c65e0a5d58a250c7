"""What `cordee watch` asks of a shared file system, counted."""

from __future__ import annotations

import time

import pytest

from cordee.faces.cli.watch import samples, state
from cordee.faces.cli.watch import screen as watching
from cordee.runs.lookout import WATCHED_PER_S, Lookout
from cordee.runs.news import NewsWriter, RunNews, news_file
from support.made.runs import MadeRun, write_run
from support.operations import counted


class Clock:
    now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def __getattr__(self, name: str):
        return getattr(time, name)


def watched(tmp_path, monkeypatch, clock: Clock, gpus: int = 4) -> tuple[watching.WatchScreen, NewsWriter]:
    """A screen that watches a run which trains, on a shared file system, and what tells the run's news."""
    folder = write_run(tmp_path, MadeRun(gpus, 30))
    lines = (folder.journal / "supervisor-1.jsonl").read_text().splitlines(keepends=True)
    (folder.journal / "supervisor-1.jsonl").write_text("".join(line for line in lines if '"ended"' not in line))
    for module in (state, samples):
        monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(
        state, "Lookout", lambda folder, **more: Lookout(folder, **more, shared=True, clock=clock.monotonic)
    )
    return watching.WatchScreen(folder), NewsWriter(news_file(folder.root))


@pytest.mark.parametrize("gpus", [4, 256])
def test_watching_a_run_that_trains_asks_at_most_one_operation_a_second(tmp_path, monkeypatch, gpus):
    clock = Clock()
    view, writer = watched(tmp_path, monkeypatch, clock, gpus)
    asked = turns = 0
    while clock.now < 1000.0 + 1200.0:
        turns += 1
        writer.tell(RunNews(1, 1, 1 + turns // 60, turns, {}))
        with counted(tmp_path) as operations:
            assert not view.read().ended
        if clock.now > 1000.0 + 300.0:
            asked += operations.total()
        clock.now += watching._REFRESH_S
    assert view.samples.rows
    assert asked / 900.0 <= WATCHED_PER_S


def test_the_scheduler_s_answer_is_looked_for_only_while_no_supervisor_says_that_it_lives(tmp_path, monkeypatch):
    clock, asked = Clock(), []
    view, writer = watched(tmp_path, monkeypatch, clock)
    monkeypatch.setattr(state, "stand", lambda _, state: (asked.append(clock.now), (state, None))[1])
    for turn in range(1200):
        if turn < 600:
            writer.tell(RunNews(1, 1, 1, turn, {}))
        assert view.read().state == "running"
        clock.now += 0.5
    assert asked
    assert asked[0] >= 1000.0 + 300.0
    assert len(asked) <= 11
