"""The journal on a disk that refuses, says no late, loses what it had taken, or stands still: no event is lost, none raised away."""

from __future__ import annotations

import asyncio
import errno
import json

import pytest

from cordee.runs.journal import JournalLine, JournalWriter, UnwrittenLines, read_journal
from cordee.runs.lane import Lane
from cordee.runs.state import replay
from support.disks import REFUSALS, DiskFault, FaultyDisk

ENDED = {"state": "finished", "exit_code": 0, "reason": "finished", "text": ""}


def names(folder):
    return [event["event"] for event in read_journal(folder)]


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "run" / "journal"
    made.mkdir(parents=True)
    return made


@pytest.mark.parametrize("number", REFUSALS)
@pytest.mark.parametrize("call", ["open", "write", "fsync", "close"])
@pytest.mark.parametrize("lose", [False, True])
def test_whichever_call_refuses_the_event_waits_and_is_there_once(folder, call, number, lose):
    disk = FaultyDisk()
    writer = JournalWriter(folder, "supervisor-1", 1, disk=disk)
    writer.append("before")
    disk.fail(call, number, lose=lose)
    writer.append("during")
    assert writer.last_error.errno == number
    assert writer.refused_since is not None
    assert writer.flush()
    assert writer.last_error is None
    assert writer.refused_since is None
    writer.append("after")
    assert names(folder) == ["before", "during", "after"]
    assert writer.pending == 0
    assert disk.met[call] == 1


def test_a_durable_event_is_so_only_once_fsync_and_close_have_said_yes(folder):
    disk = FaultyDisk()
    writer = JournalWriter(folder, "supervisor-1", 1, disk=disk)
    disk.fail("fsync", errno.EDQUOT, times=3, lose=True)
    writer.append("ended", **ENDED)
    assert writer.durable_until == 0
    assert not writer.flush()
    assert not writer.flush()
    assert writer.flush()
    assert writer.durable_until == 1
    assert replay(read_journal(folder)).ended


def test_what_was_written_without_fsync_is_written_again_when_a_later_fsync_says_that_it_is_lost(folder):
    disk = FaultyDisk()
    writer = JournalWriter(folder, "supervisor-1", 1, disk=disk)
    writer.append("submitted")
    writer.append("rank_started", durable=False, rank=0)
    disk.fail("fsync", errno.EIO, lose=True)
    writer.append("attempt_ended")
    assert names(folder) == ["submitted"]
    writer.flush()
    assert names(folder) == ["submitted", "rank_started", "attempt_ended"]


def test_a_write_that_is_taken_in_part_goes_on_where_it_was(folder):
    disk = FaultyDisk(DiskFault("write", errno.ENOSPC, part=30))
    writer = JournalWriter(folder, "supervisor-1", 1, disk=disk)
    writer.append("first")
    writer.append("second")
    assert names(folder) == ["first", "second"]


def test_lines_that_the_file_took_before_the_disk_was_full_are_not_written_twice(folder):
    disk = FaultyDisk(DiskFault("open", errno.ENOSPC, times=3))
    writer = JournalWriter(folder, "supervisor-1", 1, disk=disk)
    sizes = [len(json.dumps(writer.append(name), separators=(",", ":"))) + 1 for name in ("a", "b", "c")]
    disk.fail("write", errno.ENOSPC, part=sum(sizes[:2]) + 5)
    disk.fail("write", errno.ENOSPC)
    assert not writer.flush()
    assert writer.pending == 3  # one call of write: how much of it was taken before the error is not known
    assert writer.flush() is False
    assert writer.flush()
    assert names(folder) == ["a", "b", "c"]


def test_hours_over_quota_drop_progress_that_is_superseded_and_nothing_else(folder):
    disk = FaultyDisk(DiskFault("open", errno.EDQUOT, times=-1))
    writer = JournalWriter(folder, "supervisor-1", 1, disk=disk)
    writer.append("submitted")
    for step in range(60_000):
        writer._waiting.add(JournalLine(b"x" * 200 + b"\n", writer.sequence, "progress", False))
        writer.sequence += 1
        if step % 20_000 == 0:
            writer.append("rank_exited", rank=step)
    writer.append("progress", durable=False, step=60_000, total=60_000)
    writer.append("ended", **ENDED)
    assert writer._waiting.superseded > 0
    assert sum(len(line.data) for line in writer._waiting.take()) <= 20 << 20
    disk.release()
    assert writer.flush()
    state = replay(read_journal(folder))
    assert [name for name in names(folder) if name != "progress"] == ["submitted", *["rank_exited"] * 3, "ended"]
    assert (state.state, state.step) == ("finished", 60_000)


def test_what_is_being_written_is_not_dropped_meanwhile():
    waiting = UnwrittenLines(most_bytes=100)
    for number in range(4):
        waiting.add(JournalLine(b"p" * 20, number, "progress", False))
    assert len(waiting.take()) == 4
    for number in range(4, 12):
        waiting.add(JournalLine(b"p" * 20, number, "progress", False))
    waiting.took(4)
    assert waiting.first_not_written(12) >= 4
    waiting.certain()
    assert waiting.take()[-1].sequence == 11
    assert waiting.superseded > 0


def test_the_same_line_twice_is_one_event_and_two_of_one_place_are_two(folder):
    writer = JournalWriter(folder, "client", 3)
    writer.append("resume_requested")
    data = writer.path.read_bytes()
    JournalWriter(folder, "client", 3).append("cancel_requested", by="another command at the same moment")
    with writer.path.open("ab") as file:
        file.write(data)
    assert names(folder) == ["resume_requested", "cancel_requested"]


def test_a_disk_that_stands_still_holds_up_the_writing_and_not_the_loop(folder):
    disk = FaultyDisk()
    lane = Lane("journal")
    writer = JournalWriter(folder, "supervisor-1", 1, disk=disk, lane=lane)

    async def lead():
        writer.append("supervisor_started")
        await writer.durable()
        disk.hold("fsync")
        writer.append("attempt_started")
        waits = asyncio.ensure_future(writer.durable())
        for _ in range(1000):
            writer.append("rank_exited", rank=1)
            await asyncio.sleep(0)
        while lane.busy_s == 0.0:
            await asyncio.sleep(0.001)
        assert not waits.done()
        assert writer.durable_until == 1
        disk.release()
        await waits
        await writer.durable()
        assert writer.durable_until == writer.sequence == 1002

    asyncio.run(lead())
    assert len(names(folder)) == 1002
    assert disk.calls["fsync"] <= 4


def test_waiting_for_the_disk_lasts_as_long_as_it_refuses(folder, monkeypatch):
    monkeypatch.setattr("cordee.runs.journal._RETRY_S", 0.001)
    disk = FaultyDisk(DiskFault("close", errno.EROFS, times=7))
    writer = JournalWriter(folder, "supervisor-1", 1, disk=disk, lane=Lane("journal"))

    async def lead():
        writer.append("ended", **ENDED)
        await writer.durable()

    asyncio.run(lead())
    assert disk.met["close"] == 7
    assert replay(read_journal(folder)).ended


def test_the_end_of_a_hundred_thousand_ranks_takes_two_fsyncs():
    waiting, syncs = UnwrittenLines(), 0

    def write(lines):
        nonlocal syncs
        for line in lines:
            waiting.add(line)
        took = len(waiting.take())
        wanted = waiting.wants_sync
        waiting.took(took)
        if wanted:
            syncs += 1
            waiting.certain()

    for first in range(0, 100_000, 100):
        write([JournalLine(b"x" * 270, rank, "rank_exited", False) for rank in range(first, first + 100)])
    assert waiting.first_not_durable(100_000) > 0
    write([JournalLine(b"x" * 300, 100_000, "attempt_ended", True)])
    assert syncs == 2
    assert waiting.first_not_durable(100_001) == 100_001


def test_what_a_later_fsync_refuses_is_due_again():
    waiting = UnwrittenLines()
    waiting.add(JournalLine(b"a", 0, "attempt_ended", True))
    waiting.took(len(waiting.take()))
    assert waiting.wants_sync
    waiting.uncertain()
    assert not waiting.wants_sync
    waiting.take()
    assert waiting.wants_sync
    waiting.took(1)
    waiting.certain()
    assert not waiting.wants_sync


def test_a_burst_while_the_disk_is_busy_takes_one_more_fsync(folder):
    disk = FaultyDisk()
    writer = JournalWriter(folder, "supervisor-1", 1, disk=disk, lane=Lane("journal"))

    async def lead():
        disk.hold("fsync")
        writer.append("attempt_started")
        while not disk.met["fsync"]:
            await asyncio.sleep(0.001)
        for rank in range(10_000):
            writer.append("rank_exited", rank=rank, code=1)
        disk.release()
        await writer.durable()

    asyncio.run(lead())
    assert disk.calls["fsync"] <= 3
    assert [event.get("rank") for event in read_journal(folder)] == [None, *range(10_000)]
