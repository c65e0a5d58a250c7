"""What the server asks of the file system while somebody watches: counted."""

from __future__ import annotations

from pathlib import Path

import pytest

from cordee.faces.web.runs import library as shelves
from cordee.faces.web.runs.library import RunLibrary
from cordee.faces.web.runs.stamps import Stamps
from cordee.runs.folder import RunFolder
from cordee.runs.journal import JournalWriter
from cordee.runs.lookout import WATCHED_PER_S
from cordee.runs.news import NewsWriter, RunNews, news_file
from support.clocks import give_clock
from support.operations import counted


def made(parent: Path, name: str, *, logs: int = 1, ended: bool = False) -> RunFolder:
    folder = RunFolder.create(parent, name)
    folder.plan.write_text("{}")
    journal = JournalWriter(folder.journal, "supervisor-1", 1)
    journal.append("submitted")
    journal.append("supervisor_started", segment=1)
    if ended:
        journal.append("ended", state="finished", exit_code=0)
    for number in range(logs):
        (folder.logs / f"nid{number:06d}-1.log").write_bytes(b"")
    return folder


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def entries(folder: RunFolder) -> int:
    """Return how many files a whole look finds: their `stat` is C code, which is not counted."""
    return sum(len(list(place.iterdir())) for place in (folder.journal, folder.telemetry, folder.logs))


def test_a_page_that_follows_a_run_of_many_nodes_asks_at_most_one_operation_a_second(tmp_path):
    folder, clock = made(tmp_path, "big-20261122T000000Z-aaaa", logs=1000), Clock()
    news, writer = RunNews(1, 1, 1, 0, {}), NewsWriter(news_file(folder.root))
    writer.tell(news)
    stamps = Stamps(folder, shared=True, clock=clock)
    for _ in range(400):
        stamps.now()
        clock.now += 0.5
    seen, asked = set(), 0
    for turn in range(1200):
        writer.tell(news._replace(telemetry=turn))
        before = len(seen)
        with counted(tmp_path) as operations:
            seen.add(stamps.now())
        asked += operations.total() + 20 * (len(seen) - before)  # with what is read when there is something new
        clock.now += 0.5
    assert len(seen) > 10
    assert asked / 600.0 <= WATCHED_PER_S * 1.1


def test_a_page_that_follows_a_run_without_news_looks_the_more_seldom_the_more_files_there_are(tmp_path):
    folder, clock = made(tmp_path, "old-20261122T000000Z-aaaa", logs=1000), Clock()
    stamps = Stamps(folder, shared=True, clock=clock)
    stamps.now()
    looks, asked = 0, 0
    for _ in range(7200):
        clock.now += 0.5
        with counted(tmp_path) as operations:
            stamps.now()
        looks += operations["list"] >= 5
        asked += operations.total()
    assert (asked + looks * entries(folder)) / 3600.0 <= WATCHED_PER_S * 1.5


def test_what_matters_changes_the_stamp_at_once(tmp_path):
    folder, clock = made(tmp_path, "t-20261122T000000Z-aaaa"), Clock()
    writer = NewsWriter(news_file(folder.root))
    writer.tell(RunNews(1, 1, 1, 0, {}))
    stamps = Stamps(folder, shared=True, clock=clock)
    for _ in range(200):
        before = stamps.now()
        clock.now += 0.5
    writer.tell(RunNews(1, 2, 2, 0, {}))
    assert stamps.now() != before


def test_a_list_of_many_runs_asks_a_bounded_number_of_operations(tmp_path, monkeypatch):
    clock = Clock()
    give_clock(monkeypatch, shelves.__name__, monotonic=clock)
    for number in range(200):
        made(tmp_path, f"r{number}-20261122T000000Z-bbbb", ended=number >= 10)
    shelf = RunLibrary([tmp_path], per_s=20.0)
    assert len(shelf.summaries()) == 200
    for _ in range(150):
        shelf.summaries()
        clock.now += 1.0
    with counted(tmp_path) as operations:
        for _ in range(100):
            shelf.summaries()
            clock.now += 1.0
    assert operations.total() / 100.0 <= 20.0


def test_runs_that_go_on_are_looked_at_before_those_that_have_ended(tmp_path, monkeypatch):
    clock = Clock()
    give_clock(monkeypatch, shelves.__name__, monotonic=clock)
    for number in range(200):
        made(tmp_path, f"r{number}-20261122T000000Z-bbbb", ended=number > 0)
    shelf = RunLibrary([tmp_path], per_s=20.0)
    for _ in range(150):
        shelf.summaries()
        clock.now += 1.0
    JournalWriter(tmp_path / "r0-20261122T000000Z-bbbb" / "journal", "supervisor-1", 1, 2).append(
        "ended", state="finished", exit_code=0
    )
    for _ in range(2):
        clock.now += 1.0
        found = {one.id: one.state for one in shelf.summaries()}
    assert found["r0-20261122T000000Z-bbbb"] == "finished"


@pytest.mark.parametrize("kind", ["new", "gone"])
def test_runs_that_come_and_go_are_seen_within_seconds(tmp_path, monkeypatch, kind):
    clock = Clock()
    give_clock(monkeypatch, shelves.__name__, monotonic=clock)
    for number in range(20):
        made(tmp_path, f"r{number}-20261122T000000Z-bbbb")
    shelf = RunLibrary([tmp_path], per_s=20.0)
    for _ in range(150):
        shelf.summaries()
        clock.now += 1.0
    name = "new-20261122T000000Z-cccc"
    if kind == "new":
        made(tmp_path, name)
    else:
        (tmp_path / "r0-20261122T000000Z-bbbb").rename(tmp_path.parent / "elsewhere")
    for _ in range(3):
        clock.now += 1.0
        found = {one.id for one in shelf.summaries()}
    assert (name in found) if kind == "new" else (len(found) == 19)
