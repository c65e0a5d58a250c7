"""Following a journal: only what is new is read, in the right order, however long it is and whatever was written twice."""

from __future__ import annotations

import json

import pytest

import cordee.runs.journal_follower as following
from cordee.core.errors import RunFolderError
from cordee.runs.folder import RunFolder
from cordee.runs.journal import JournalWriter, read_journal
from cordee.runs.journal_follower import JournalFollower
from cordee.runs.state import replay

ENDED = {"state": "finished", "exit_code": 0, "reason": "finished", "text": ""}


@pytest.fixture
def folder(tmp_path):
    return RunFolder.create(tmp_path, "t-20260101T000000Z-abcd")


@pytest.fixture(params=[True, False], ids=["kept", "passed on"])
def follower(folder, request):
    return JournalFollower(folder, keep=request.param)


def test_the_state_follows_the_journal(folder, follower):
    writer = JournalWriter(folder.journal, "supervisor-1", 1)
    writer.append("supervisor_started", segment=1)
    assert follower.read().state == "running"
    writer.append("progress", step=3, total=9)
    assert follower.read().step == 3
    version = follower.version
    assert follower.read().step == 3
    assert follower.version == version
    late = JournalWriter(folder.journal, "client", 0)
    late.append("submitted", backend="local", nodes=1, ranks=2)
    assert follower.read().submitted_at is not None
    assert vars(follower.state) == vars(replay(read_journal(folder.journal), folder.id))


def test_a_torn_line_is_read_once_it_is_whole(folder, follower):
    writer = JournalWriter(folder.journal, "supervisor-1", 1)
    writer.append("supervisor_started", segment=1)
    writer.append("ended", **ENDED)
    data = writer.path.read_bytes()
    for size in range(len(data)):
        writer.path.write_bytes(data[:size])
        assert not follower.read().ended
    writer.path.write_bytes(data)
    assert follower.read().ended


def test_lines_written_again_change_nothing(folder, follower):
    writer = JournalWriter(folder.journal, "supervisor-1", 1)
    writer.append("supervisor_started", segment=1)
    placed = [{"node": "n", "ranks": [0]}]
    writer.append("attempt_started", attempt=1, world_size=1, nodes=placed)
    follower.read()
    data = writer.path.read_bytes()
    writer.append("attempt_started", attempt=2, world_size=1, nodes=placed)
    with writer.path.open("ab") as file:
        file.write(data)
    assert follower.read().restarts == 1
    assert len(follower.state.attempts) == 2


def test_only_new_bytes_are_read(folder, monkeypatch):
    writer = JournalWriter(folder.journal, "supervisor-1", 1)
    for step in range(100):
        writer.append("progress", durable=False, step=step)
    follower = JournalFollower(folder, keep=False)
    follower.read()
    parsed = []
    real = following.parse_lines
    monkeypatch.setattr(
        following, "parse_lines", lambda data, *more, **how: parsed.append(data) or real(data, *more, **how)
    )
    writer.append("progress", durable=False, step=100)
    assert follower.read().step == 100
    assert b"".join(parsed).count(b'"seq"') == 1


def test_a_journal_that_is_too_long_for_others_is_not_for_its_own_run(folder, monkeypatch):
    writer = JournalWriter(folder.journal, "supervisor-1", 1)
    for step in range(500):
        writer.append("progress", durable=False, step=step)
    monkeypatch.setattr("cordee.runs.journal.MOST_BYTES", 10_000)
    monkeypatch.setattr(following, "MOST_BYTES", 10_000)
    monkeypatch.setattr(following, "_READ_BYTES", 1_000)
    monkeypatch.setattr(following, "_FEED_EVENTS", 7)
    with pytest.raises(RunFolderError, match="larger than"):
        JournalFollower(folder).read()
    assert JournalFollower(folder, keep=False).read().step == 499


def test_writers_are_merged_over_many_pieces(folder, monkeypatch):
    monkeypatch.setattr(following, "_READ_BYTES", 700)
    for epoch in (1, 2, 3):
        JournalWriter(folder.journal, "client", epoch, 20).append("cancel_requested", by=str(epoch))
        writer = JournalWriter(folder.journal, f"supervisor-{epoch}", epoch)
        for step in range(30):
            writer.append("progress", durable=False, step=100 * epoch + step)
    follower = JournalFollower(folder)
    follower.read()
    assert follower.events == read_journal(folder.journal)
    passing = JournalFollower(folder, keep=False)
    assert json.dumps(vars(passing.read()), default=vars) == json.dumps(vars(follower.state), default=vars)
