"""What the end of a run left to do, done by who reads it next."""

from __future__ import annotations

import json
import os
import types
from concurrent.futures import ThreadPoolExecutor

import pytest

from cordee.faces.cli import main
from cordee.faces.report.completion import complete, reported
from cordee.runs.folder import RunFolder
from cordee.runs.journal import JournalWriter, read_journal
from cordee.runs.state import replay
from cordee.telemetry.node.blocklog import BlockLogWriter, encode_grid, encode_schema, list_parts
from cordee.telemetry.store.reader import Run
from support.clocks import give_clock

METRICS = [{"name": "memory_rss_bytes", "unit": "bytes", "source": "test"}]


@pytest.fixture
def left(tmp_path, monkeypatch) -> RunFolder:
    """A run whose supervisor was killed right after it had written the end, an hour ago."""
    folder = RunFolder.create(tmp_path, "left-20261121T000000Z-abcd")
    folder.plan.write_text(
        '{"run": "left", "backend": "local", "name": "left", "steps": [{"tasks": {}, "request": {}}]}'
    )
    monkeypatch.setattr("cordee.runs.journal.utc_text", lambda _: "2026-11-21T00:00:00.000Z")
    journal = JournalWriter(folder.journal, "supervisor-1", 1)
    journal.append("submitted", nodes=1)
    journal.append("supervisor_started", segment=1)
    journal.append("attempt_started", attempt=1, world_size=1, nodes=[{"node": "n0", "ranks": [0]}])
    log = BlockLogWriter(folder.telemetry, 1)
    identity, schema = encode_schema("n0", "rank", 1.0, [0], METRICS)
    samples = b"".join(encode_grid(identity, 1e9 + at, memoryview(bytearray(8)).tobytes()) for at in range(20))
    log.append(schema + samples)
    log.flush()
    log.close()
    journal.append("ended", state="finished", exit_code=0, reason="finished", text="")
    return folder


def state(folder: RunFolder):
    return replay(read_journal(folder.journal), folder.id)


def test_who_reads_a_run_that_was_left_unsealed_seals_and_reports_it_once(left):
    before = state(left)
    assert not reported(left, before)
    assert complete(left, before)
    assert reported(left, before)
    assert list_parts(left.telemetry) == []
    assert state(left).state == "finished"
    assert state(left).sealed_until is not None
    assert len(Run(left).grid("rank").times) == 20
    assert not complete(left, state(left))


def test_a_run_that_has_just_ended_is_left_to_its_supervisor(left, monkeypatch):
    now = state(left)
    give_clock(monkeypatch, "cordee.faces.report.completion", time=lambda: now.ended_at + 5.0)
    assert not complete(left, now)
    assert complete(left, now, owner_is_gone=True)


def test_readers_that_come_together_do_not_disturb_each_other(left):
    before = state(left)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: complete(left, before), range(4)))
    complete(left, state(left))
    assert len(Run(left).grid("rank").times) == 20
    assert sum(event["event"] == "sealed" for event in read_journal(left.journal)) >= 1
    assert reported(left, before)


def test_a_run_of_another_user_is_left_as_it_is(left, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert not complete(left, state(left))


def test_a_run_that_goes_on_is_left_alone(left):
    before = replay([event for event in read_journal(left.journal) if event["event"] != "ended"], left.id)
    assert not complete(left, before, owner_is_gone=True)
    assert list_parts(left.telemetry)


def test_show_completes_what_it_shows(left, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["show", left.id, "--runs", str(left.root.parent)])
    assert ended.value.code == 0
    assert "finished" in capsys.readouterr().out
    assert list_parts(left.telemetry) == []


def told(capsys, *words: str) -> tuple[str, str]:
    """Run a command that succeeds and return what it printed."""
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    assert ended.value.code == 0
    return capsys.readouterr()


def test_show_says_that_the_report_was_made_now_and_from_then_on_where_it_is(left, capsys):
    show = ("show", left.id, "--runs", str(left.root.parent))
    page = left.report / "index.html"
    assert f"report      {page} (made now)\n" in told(capsys, *show)[0]
    assert f"report      {page}\n" in told(capsys, *show)[0]


def test_show_leaves_a_run_that_has_just_ended_to_its_supervisor_and_says_so(left, capsys, monkeypatch):
    now = state(left).ended_at + 5.0
    give_clock(monkeypatch, "cordee.faces.report.completion", time=lambda: now)
    out, _ = told(capsys, "show", left.id, "--runs", str(left.root.parent))
    assert "report      still to be made: the run's supervisor does it now" in out
    assert not left.report.joinpath("index.html").exists()


def test_watch_makes_the_report_of_what_it_shows(left, capsys):
    out, _ = told(capsys, "watch", left.id, "--once", "--runs", str(left.root.parent))
    assert f"report      {left.report / 'index.html'} (made now)" in out
    assert reported(left, state(left))


@pytest.mark.parametrize("why", ["another owner", "a disk that is read-only"])
def test_who_may_not_write_there_is_shown_the_report_which_is_not_stored(left, capsys, monkeypatch, why):
    if why == "another owner":
        os_of_others = types.SimpleNamespace(**{**vars(os), "geteuid": lambda: os.geteuid() + 1})
    else:
        os_of_others = types.SimpleNamespace(**{**vars(os), "access": lambda path, mode: mode != os.W_OK})
    monkeypatch.setattr("cordee.faces.report.completion.os", os_of_others)
    before = sorted(left.root.rglob("*"))
    where = ("--runs", str(left.root.parent))
    assert f"`cordee report {left.id}` shows it without storing it" in told(capsys, "show", left.id, *where)[0]
    out, err = told(capsys, "report", left.id, *where)
    assert left.id in out
    assert f"only the owner of {left.root} may write there" in err
    assert json.loads(told(capsys, "report", left.id, *where, "--json")[0])["run"]
    assert sorted(left.root.rglob("*")) == before
