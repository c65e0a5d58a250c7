"""The journal: whole, torn, full, from several writers, from a newer version; and the state that follows from it."""

from __future__ import annotations

import errno
import json
import os

import pytest

from cordee.core.errors import RunFolderError
from cordee.runs.journal import JournalWriter, client_journal, read_journal
from cordee.runs.state import Replay, replay


def lines(folder):
    return [(event["epoch"], event["seq"], event["event"]) for event in read_journal(folder)]


def test_events_come_back_in_the_order_of_epoch_and_sequence(tmp_path):
    second = JournalWriter(tmp_path, "supervisor-2", 2)
    second.append("later")
    JournalWriter(tmp_path, "supervisor-1", 1).append("earlier")
    second.append("last")
    assert lines(tmp_path) == [(1, 0, "earlier"), (2, 0, "later"), (2, 1, "last")]


def test_a_client_writes_after_everything_it_can_see(tmp_path):
    client_journal(tmp_path).append("submitted")
    supervisor = JournalWriter(tmp_path, "supervisor-1", 1)
    supervisor.append("supervisor_started")
    client_journal(tmp_path).append("cancel_requested")
    assert [name for _, _, name in lines(tmp_path)] == ["submitted", "supervisor_started", "cancel_requested"]


def test_a_torn_last_line_is_passed_over_at_every_length_and_mended_by_the_next_writer(tmp_path):
    writer = JournalWriter(tmp_path, "client", 0)
    writer.append("whole")
    whole = writer.path.read_bytes()
    writer.append("torn", text="x" * 40)
    both = writer.path.read_bytes()
    for size in range(len(whole), len(both) - 1):
        writer.path.write_bytes(both[:size])
        assert [name for _, _, name in lines(tmp_path)] == ["whole"]
    JournalWriter(tmp_path, "client", 0, sequence=1).append("next")
    assert [name for _, _, name in lines(tmp_path)] == ["whole", "next"]


def test_a_full_disk_delays_events_and_loses_none(tmp_path, monkeypatch):
    writer = JournalWriter(tmp_path, "supervisor-1", 1)
    writer.append("before")
    real = os.write

    def refuse(descriptor, data):
        real(descriptor, data[: len(data) // 2])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", refuse)
    writer.append("during")
    writer.append("still")
    assert writer.pending == 2
    assert writer.last_error.errno == errno.ENOSPC
    monkeypatch.setattr(os, "write", real)
    writer.append("after")
    assert writer.pending == 0
    assert [name for _, _, name in lines(tmp_path)] == ["before", "during", "still", "after"]


def test_garbage_and_foreign_lines_are_passed_over(tmp_path):
    writer = JournalWriter(tmp_path, "client", 0)
    writer.append("good")
    with writer.path.open("ab") as file:
        file.write(b'\xff\xfe\x00garbage\n[1, 2]\n{"schema": "other/1", "event": "x"}\n{"event": 3}\n')
    assert [name for _, _, name in lines(tmp_path)] == ["good"]


def test_a_newer_major_version_is_refused_by_name(tmp_path):
    (tmp_path / "client.jsonl").write_text(
        json.dumps({"schema": "cordee.journal/2", "event": "x", "epoch": 0, "seq": 0}) + "\n"
    )
    with pytest.raises(RunFolderError) as caught:
        read_journal(tmp_path)
    assert caught.value.given == "cordee.journal/2"
    assert caught.value.allowed == "cordee.journal/1"


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(RunFolderError, match="cannot read the journal"):
        read_journal(tmp_path / "gone")


def test_a_clock_that_jumps_back_changes_neither_order_nor_durations():
    def event(seq, name, time, mono, **more):
        base = {
            "schema": "cordee.journal/1",
            "epoch": 1,
            "seq": seq,
            "writer": "supervisor-1",
            "time": time,
            "mono": mono,
        }
        return {**base, "event": name, **more}

    ranks = [{"node": "local-0", "ranks": [0]}]
    state = replay(
        [
            event(0, "supervisor_started", "2026-01-01T12:00:00.000Z", 100.0, segment=1),
            event(1, "vetting_started", "2026-01-01T12:00:01.000Z", 101.0),
            event(2, "attempt_started", "2026-01-01T11:00:00.000Z", 103.0, attempt=1, world_size=1, nodes=ranks),
            event(3, "rank_started", "2026-01-01T11:00:01.000Z", 104.0, attempt=1, rank=0, node="local-0", pid=1),
            event(4, "attempt_ended", "2026-01-01T11:00:09.000Z", 112.0, attempt=1, outcome="finished", reason=""),
            event(5, "ended", "2026-01-01T11:00:10.000Z", 113.0, state="finished", exit_code=0),
        ]
    )
    assert [(phase.name, round(phase.end - phase.start, 3)) for phase in state.phases] == [
        ("connect", 1.0), ("vet", 2.0), ("start", 1.0), ("train", 8.0), ("end", 1.0),
    ]  # fmt: skip
    assert state.state == "finished"


@pytest.mark.parametrize("late", [False, True])
def test_an_end_that_an_older_supervisor_wrote_does_not_hide_a_newer_one_that_trains(late):
    def event(epoch, seq, name, **more):
        time = f"2026-01-01T00:00:{10 * epoch + seq:02}.000Z"
        base = {"epoch": epoch, "seq": seq, "writer": f"supervisor-{epoch}", "time": time, "mono": float(seq)}
        return {**base, "event": name, **more}

    ranks = [{"node": "local-0", "ranks": [0]}]
    ended = event(1, 1, "ended", state="failed", exit_code=1, reason="retries", text="late word")
    newer = [
        event(2, 0, "supervisor_started", segment=1),
        event(2, 1, "attempt_started", attempt=2, world_size=1, nodes=ranks),
        event(2, 2, "rank_started", rank=0, node="local-0", pid=1),
    ]
    begun = [event(1, 0, "supervisor_started", segment=1)]
    followed = Replay()  # one that reads the newer supervisor's events before the late word of the older
    state = followed.feed(begun + newer + [ended]) if late else followed.feed([*begun, ended, *newer])
    assert (state.state, state.exit_code, state.text, state.ended_at) == ("running", None, "", None)
    assert (state.segment_states[-1].ended_at, state.phases[-1].name) == (None, "train")
    state = followed.feed([event(2, 3, "ended", state="finished", exit_code=0)])
    assert (state.state, state.exit_code) == ("finished", 0)


def test_unknown_events_change_nothing():
    assert (
        replay(
            [{"epoch": 1, "seq": 0, "writer": "x", "time": "2026-01-01T00:00:00.000Z", "event": "from_the_future"}]
        ).state
        == "queued"
    )
