"""What those who wait for a run ask of its file system: counted, for runs of any size."""

from __future__ import annotations

import pytest

from cordee.faces.cli.follow import LineTail
from cordee.runs.budget import Budget
from cordee.runs.folder import RunFolder
from cordee.runs.journal import JournalWriter
from cordee.runs.journal_follower import JournalFollower
from cordee.runs.logframes import OUT, LogWriter, encode_frame
from cordee.runs.logtail import LogTail
from cordee.runs.lookout import SHARED_PER_S, Lookout
from cordee.runs.news import NewsReader, NewsWriter, RunNews, news_file
from cordee.runs.waiting_clients import WaitingClients
from support.operations import counted


@pytest.fixture
def folder(tmp_path) -> RunFolder:
    made = RunFolder.create(tmp_path, "t-20261121T000000Z-aaaa")
    JournalWriter(made.journal, "client", 0).append("submitted")
    JournalWriter(made.journal, "supervisor-1", 1).append("supervisor_started", segment=1)
    return made


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Waiting:
    """A command that waits for a run on a shared file system, and the run, which tells what is new."""

    def __init__(self, folder: RunFolder, nodes: int) -> None:
        self.folder, self.clock = folder, Clock()
        self.names = [f"nid{index:06d}-1.log" for index in range(nodes)]
        for name in self.names:
            (folder.logs / name).write_bytes(b"")
        self.sizes = dict.fromkeys(self.names, 0)
        self.news = RunNews(1, 1, 1, 0, dict(self.sizes))
        self.writer = NewsWriter(news_file(folder.root))
        self.lookout = Lookout(folder, shared=True, clock=self.clock)
        self.journal, self.lines = JournalFollower(folder), LineTail(folder.logs)
        self.read: list[tuple[int, int, bytes]] = []

    def prints(self, names: list[str]) -> None:
        for name in names:
            with open(self.folder.logs / name, "ab") as log:
                log.write(encode_frame(0, OUT, 1, b"line\n", self.clock.now))
            self.sizes[name] = (self.folder.logs / name).stat().st_size
        self.news = self.news._replace(logs=dict(self.sizes))

    def look(self) -> None:
        """One turn of `cordee run`."""
        seen = self.lookout.look()
        if seen.journal:
            self.journal.read()
        self.read += self.lines.read(seen.logs, everything=False)
        self.clock.now += self.lookout.pause_s


@pytest.mark.campaign
@pytest.mark.parametrize("nodes", [1, 400])
def test_waiting_for_a_run_that_prints_and_trains_asks_at_most_one_operation_in_two_seconds(folder, nodes):
    waiting = Waiting(folder, nodes)
    waiting.writer.tell(waiting.news)
    for _ in range(200):  # the beginning, in which files are opened
        waiting.look()
    asked, began, looks, told = 0, waiting.clock.now, 0, len(waiting.read)
    while waiting.clock.now < began + 600.0:
        waiting.prints(waiting.names[:20])
        waiting.news = waiting.news._replace(journal=waiting.news.journal + 1, telemetry=looks)
        waiting.writer.tell(waiting.news)
        with counted(folder.root) as operations:
            waiting.look()
        asked += operations.total()
        looks += 1
    assert asked / 600.0 <= SHARED_PER_S
    assert looks > 200
    assert len(waiting.read) - told == looks * min(nodes, 20)


def test_waiting_in_the_queue_asks_at_most_one_operation_in_two_seconds(folder):
    waiting, asked = Waiting(folder, 0), 0
    for _ in range(100):
        waiting.look()
    began = waiting.clock.now
    while waiting.clock.now < began + 600.0:
        with counted(folder.root) as operations:
            waiting.look()
        asked += operations.total()
    assert asked / 600.0 <= SHARED_PER_S * 1.1


def test_what_matters_is_read_at_once_and_once(folder):
    waiting = Waiting(folder, 1)
    waiting.writer.tell(waiting.news)
    for _ in range(100):
        waiting.look()
    assert waiting.lookout.pause_s == 2.0
    assert not waiting.lookout.look().journal
    waiting.writer.tell(waiting.news._replace(marks=2, journal=2))
    assert waiting.lookout.look().journal
    assert waiting.lookout.pause_s < 0.2
    assert not waiting.lookout.look().journal


def test_an_end_is_read_at_once_however_many_wait_and_whatever_they_owe(folder):
    clients = [WaitingClients(folder.root, 0.0) for _ in range(40)]
    for one in clients:
        one.count(2.0)
    waiting = Waiting(folder, 1)
    waiting.writer.tell(waiting.news)
    while waiting.clock.now < 1060.0:
        waiting.news = waiting.news._replace(marks=waiting.news.marks + 1, journal=waiting.news.journal + 1)
        waiting.writer.tell(waiting.news)
        seen = waiting.lookout.look()
        waiting.clock.now += 1.0
    assert not seen.journal
    waiting.writer.tell(waiting.news._replace(ending=True))
    assert waiting.lookout.look().journal


def test_what_nobody_tells_is_found_too(folder):
    waiting = Waiting(folder, 1)
    waiting.writer.tell(waiting.news)
    for _ in range(100):
        waiting.look()
    began = waiting.clock.now
    JournalWriter(folder.journal, "client", 1, 5).append("ended", state="failed", exit_code=5)
    while not waiting.journal.state.ended:
        assert waiting.clock.now < began + 30.0
        waiting.look()


def test_news_are_read_as_they_were_told(folder):
    writer, reader = NewsWriter(news_file(folder.root)), NewsReader(folder.root)
    assert reader.read() is None
    long = RunNews(1, 2, 3, 4, {f"n{index}-1.log": index for index in range(10_000)})
    for news in (RunNews(1, 1, 1, 0, {}), long, RunNews(2, 1, 1, 0, {"n1-2.log": 7}, True)):
        assert writer.tell(news)
        assert not writer.tell(news)
        assert reader.read() == news


def test_news_that_are_damaged_are_no_news(folder):
    NewsWriter(news_file(folder.root)).tell(RunNews(1, 1, 1, 0, {"n1-1.log": 5}))
    with open(news_file(folder.root), "r+b") as file:
        file.seek(20)
        file.write(b"?")
    assert NewsReader(folder.root).read() is None
    news_file(folder.root).write_bytes(b"")
    assert NewsReader(folder.root).read() is None


def test_a_log_that_was_made_anew_is_read_from_its_beginning(folder):
    path = folder.logs / "n1-1.log"
    first = LogWriter(path)
    first.write(0, OUT, 1, b"one\n", 1.0)
    tail = LogTail(folder.logs)
    assert [frame.data for frame in tail.read()] == [b"one\n"]
    first.close()
    path.unlink()
    LogWriter(path).write(0, OUT, 1, b"two\n", 2.0)
    assert [frame.data for frame in tail.read()] == [b"two\n"]


def test_a_budget_is_kept_in_the_long_run_and_may_be_saved_up():
    budget, bought = Budget(0.5, 10.0, 0.0), 0
    for second in range(1000):
        bought += budget.buy(2.0, float(second))
    assert bought * 2 == pytest.approx(510.0, abs=2.0)
    assert budget.buy(10.0, 2000.0)
    assert not budget.buy(1.0, 2000.0)


def test_a_log_that_was_told_of_and_is_not_made_yet_is_no_trouble(tmp_path):
    tail = LogTail(tmp_path)
    assert list(tail.read({"n-1.log"})) == []
    assert tail.troubles == {}
