from __future__ import annotations

import json
import os
import tempfile
import time
from pathlib import Path

import pytest

from cordee.core.errors import RunNotFound
from cordee.runs import index
from cordee.runs.folder import RunFolder
from cordee.runs.index import CACHE, find_run, list_runs
from cordee.runs.journal import JournalWriter


def make_run(parent: Path, run_id: str, *, ended: str | None = "finished", step: int = 7) -> RunFolder:
    folder = RunFolder.create(parent, run_id)
    journal = JournalWriter(folder.journal, "client", 0)
    journal.append("submitted", durable=False, backend="local", nodes=2, ranks=2)
    supervisor = JournalWriter(folder.journal, "supervisor-1", 1)
    supervisor.append("supervisor_started", durable=False, segment=1)
    supervisor.append("progress", durable=False, step=step, total=10)
    if ended:
        supervisor.append(
            "ended", durable=False, state=ended, exit_code=0 if ended == "finished" else 1, reason="because"
        )
    return folder


@pytest.fixture
def runs(tmp_path):
    for day, name in enumerate(("gpt", "gpt", "gpt-big", "sweep"), start=1):
        make_run(tmp_path, f"{name}-202611{day:02d}T010203Z-aaa{'abcd'[day - 1]}")
    return tmp_path


def test_a_summary_says_what_the_journal_says(runs):
    first = list_runs(runs)[0]
    assert (first.id, first.name, first.state) == ("gpt-20261101T010203Z-aaaa", "gpt", "finished")
    assert (first.nodes, first.step, first.total, first.exit_code, first.reason) == (2, 7, 10, 0, "because")
    assert first.submitted_at == pytest.approx(time.time(), abs=60)
    json.dumps(vars(first))


def test_runs_come_in_the_order_of_their_making(runs):
    assert [summary.name for summary in list_runs(runs)] == ["gpt", "gpt", "gpt-big", "sweep"]
    assert list_runs(runs / "nowhere") == []


def test_unchanged_runs_are_not_replayed_again_and_changed_ones_are(runs, monkeypatch):
    before = list_runs(runs)
    replayed = []
    original = index._summarise
    monkeypatch.setattr(index, "_summarise", lambda folder: replayed.append(folder.id) or original(folder))
    assert list_runs(runs) == before
    assert replayed == []
    JournalWriter(RunFolder(runs / before[0].id).journal, "supervisor-2", 2).append("progress", step=9)
    assert list_runs(runs)[0].step == 9
    assert replayed == [before[0].id]


@pytest.mark.parametrize(
    "damage", ["", "{", "[]", '{"schema": "cordee.index/9", "runs": {}}', '{"schema": "cordee.index/1", "runs": []}']
)
def test_a_damaged_cache_is_rebuilt(runs, damage):
    before = list_runs(runs)
    (runs / CACHE).write_text(damage)
    assert list_runs(runs) == before
    assert json.loads((runs / CACHE).read_text())["schema"] == "cordee.index/1"


def test_damaged_entries_of_the_cache_are_passed_over(runs):
    before = list_runs(runs)
    document = json.loads((runs / CACHE).read_text())
    document["runs"][before[0].id] = 5
    document["runs"][before[1].id]["summary"] = {"state": "finished"}
    del document["runs"][before[2].id]["stamp"]
    (runs / CACHE).write_text(json.dumps(document))
    assert list_runs(runs) == before


def test_a_cache_that_cannot_be_written_costs_only_time(runs, monkeypatch):
    (runs / CACHE).mkdir()
    assert len(list_runs(runs)) == 4


def test_a_closed_folder_of_another_user_hides_no_runs():
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        shared = Path(name)
        shared.chmod(0o777)
        (shared / "a-1" / "journal").mkdir(parents=True)
        (shared / "closed").mkdir(mode=0)
        os.seteuid(65534 if os.geteuid() == 0 else os.geteuid())
        try:
            assert [run.id for run in list_runs(shared)] == ["a-1"]
        finally:
            os.seteuid(os.getuid())
        (shared / "closed").chmod(0o700)


def test_a_run_of_a_newer_version_is_listed_as_unreadable(runs):
    run_id = "new-20261105T010203Z-aaaa"
    folder = make_run(runs, run_id)
    (folder.journal / "client.jsonl").write_text('{"schema": "cordee.journal/9", "event": "x", "epoch": 0, "seq": 0}\n')
    assert (list_runs(runs)[-1].id, list_runs(runs)[-1].state) == (run_id, "unreadable")


def test_a_queued_run_and_a_folder_without_a_journal_are_listed(runs):
    RunFolder.create(runs, "fresh-20261106T010203Z-aaaa")
    assert list_runs(runs)[-1].state == "queued"
    assert list_runs(runs)[-1].nodes == 0


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("last", "sweep-20261104T010203Z-aaad"),
        ("gpt-20261101T010203Z-aaaa", "gpt-20261101T010203Z-aaaa"),
        ("gpt", "gpt-20261102T010203Z-aaab"),
        ("gpt-big", "gpt-big-20261103T010203Z-aaac"),
        ("gpt-20261101", "gpt-20261101T010203Z-aaaa"),
        ("sw", "sweep-20261104T010203Z-aaad"),
    ],
)
def test_a_run_is_found_by(runs, name, found):
    assert find_run(name, runs).id == found


def test_a_run_is_found_by_path(runs, monkeypatch):
    run_id = "gpt-20261101T010203Z-aaaa"
    assert find_run(str(runs / run_id), "elsewhere").id == run_id
    monkeypatch.chdir(runs)
    assert find_run(f"./{run_id}", "elsewhere").id == run_id
    monkeypatch.chdir(runs / run_id)
    assert find_run(".", "elsewhere").id == run_id


@pytest.mark.parametrize(
    ("name", "allowed"),
    [("gpd", "gpt-"), ("gpt-2026", "gpt-20261101T010203Z-aaaa"), ("swep-20261104T010203Z-aaad", "sweep-2026")],
)
def test_a_wrong_name_is_refused_with_the_nearest_ids(runs, name, allowed):
    with pytest.raises(RunNotFound) as caught:
        find_run(name, runs)
    assert any(allowed in candidate for candidate in caught.value.allowed)
    assert caught.value.next


def test_no_runs_and_no_such_path_are_said_plainly(tmp_path):
    with pytest.raises(RunNotFound, match="there are no runs"):
        find_run("last", tmp_path)
    with pytest.raises(RunNotFound, match="no run folder"):
        find_run(str(tmp_path / "x"), tmp_path)


def test_two_hundred_runs_are_listed_quickly(tmp_path):
    for at in range(200):
        make_run(
            tmp_path,
            f"job-202611{at % 28 + 1:02d}T{at % 24:02d}0203Z-{'abcdefghij'[at % 10]}{'abcdefghij'[at // 10 % 10]}xx",
        )
    summaries = list_runs(tmp_path)
    started = time.process_time()
    assert list_runs(tmp_path) == summaries
    assert len(summaries) == 200
    assert time.process_time() - started < 0.5
