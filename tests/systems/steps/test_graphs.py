"""Tests and steps as runs below a run, from the document on: the real planning and the real journal, with a place that only notes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner
from playwright.sync_api import expect

from cordee.backends.local.submitter import LocalSubmitter
from cordee.core.errors import DocumentError, RunNotFound, UsageError
from cordee.faces.cli.logs import command as logs_of
from cordee.faces.cli.show import describe
from cordee.faces.report.run_document import family
from cordee.faces.web.runs.document import page_document
from cordee.faces.web.runs.library import RunLibrary
from cordee.faces.web.runs.open_run import Reading
from cordee.job.submit import Standing
from cordee.job.submit.factory import plan_of
from cordee.job.submit.prepare import create_run, prepare
from cordee.runs.children import FOLDER, ChildEnd, advance, child_ended, child_folder, of_a_resume, read_graph
from cordee.runs.journal import client_journal, read_journal
from cordee.runs.state import replay
from cordee.systems.advise.advice import advise
from cordee.systems.advise.collect import collect_situation
from support.servers.browsing import WatchedPage, chromium
from support.servers.serving import ServedRuns

STEPS = """
[steps]
prepare = { run = "true", outputs = ["prepared"], inputs = ["a.py"] }
left = { run = "true", after = "prepare", inputs = ["a.py"] }
right = { run = "true", after = "prepare", inputs = ["a.py"] }
join = { run = "true", after = ["left", "right"], outputs = ["joined"], inputs = ["a.py"] }
"""
DONE = ChildEnd("finished", 0, "finished", "")


class Place:
    """Notes what it is given."""

    def __init__(self) -> None:
        self.placed: list[str] = []

    def __call__(self, folder) -> str:
        self.placed.append(folder.id)
        return "1"


@pytest.fixture
def job(tmp_path: Path, monkeypatch):
    """Make a run of a document, `job(toml)`; returns its folder, its children's ids by name, and a place."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "job").mkdir()
    (tmp_path / "job/a.py").write_text("1")

    def make(toml: str, run: str = 'run = "true"'):
        (tmp_path / "job/cordee.toml").write_text(f'name = "t"\n{run}\n{toml}')
        prepared = prepare(str(tmp_path / "job"), "local", {"scan.policy": "off"}, tmp_path / "runs")
        prepared.require_valid()
        folder = create_run(prepared)
        return folder, {child.name: child.run for child in read_graph(folder).children}, Place()

    return make


def state_of(folder):
    return replay(read_journal(folder.journal), folder.id)


def begin(folder, place) -> list[str]:
    return advance(folder, client_journal(folder.journal), place)


def test_steps_start_when_those_before_them_are_done_and_the_last_of_two_starts_what_follows(job, tmp_path):
    folder, ids, place = job(STEPS)
    assert begin(folder, place) == ["prepare"]
    (tmp_path / "job/prepared").write_text("x")
    child_ended(folder, ids["prepare"], 1, DONE, place)
    assert place.placed == [ids["prepare"], ids["left"], ids["right"]]
    child_ended(folder, ids["left"], 1, DONE, place)
    assert len(place.placed) == 3
    child_ended(folder, ids["right"], 1, DONE, place)
    child_ended(folder, ids["right"], 2, DONE, place)  # its supervisor was killed before its last line, another follows
    assert place.placed[3:] == [ids["join"]]
    (tmp_path / "job/joined").write_text("x")
    child_ended(folder, ids["join"], 1, DONE, place)
    assert (state_of(folder).state, state_of(folder).exit_code) == ("finished", 0)


def test_many_who_start_what_follows_at_the_same_moment_start_it_once(job, tmp_path):
    folder, ids, place = job(STEPS)
    begin(folder, place)
    (tmp_path / "job/prepared").write_text("x")
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda epoch: child_ended(folder, ids["prepare"], epoch, DONE, place), range(1, 9)))
    assert sorted(place.placed) == sorted([ids["prepare"], ids["left"], ids["right"]])


@pytest.mark.parametrize(
    ("table", "order"),
    [
        (STEPS, "as soon as those before them are done"),
        ('[steps]\na = { run = "true" }\nb = { run = "true" }', "side by side"),
        ('[steps]\na = { run = "true" }\nb = { run = "true", after = "a" }', "one after the other"),
        ("[test]", "one after the other"),
        ('[sweep]\nx = [1, 2]\ngoal = "min loss"\njobs = 2', "side by side"),
    ],
)
def test_check_says_in_which_order_runs_below_a_run_start(tmp_path, table, order):
    (tmp_path / "cordee.toml").write_text(f'name = "t"\nrun = "true {{x}}"\n{table}\n')
    told = prepare(str(tmp_path), "local", {}, tmp_path / "runs").text(explain=False)
    assert told.splitlines()[0] == f"runs         {order}, each a run of its own"
    assert "one submission" not in told


def test_the_output_of_steps_is_that_of_runs_which_are_named(job):
    folder = job(STEPS)[0]
    with pytest.raises(UsageError) as caught:
        CliRunner().invoke(logs_of, [str(folder.root)], catch_exceptions=False)
    assert caught.value.allowed == [f"{folder.id}/{name}" for name in ("prepare", "left", "right", "join")]
    assert caught.value.next == f"`cordee logs {folder.id}/prepare` shows one of them"


def test_a_step_without_its_output_has_failed_and_what_follows_does_not_start(job):
    folder, ids, place = job(STEPS)
    begin(folder, place)
    end = child_ended(folder, ids["prepare"], 1, DONE, place)
    assert (end.state, end.reason) == ("failed", "missing_output")
    state = state_of(folder)
    assert state.state == "failed"
    assert "left no prepared" in state.text
    assert "not started: left, right, join" in state.text
    assert place.placed == [ids["prepare"]]


def test_a_step_that_will_not_start_any_more_is_not_started_and_says_why(job):
    folder, ids, place = job(STEPS.replace('after = ["left", "right"]', 'after = "right"'))
    begin(folder, place)
    (folder.root.parent.parent / "job/prepared").touch()
    child_ended(folder, ids["prepare"], 1, DONE, place)
    told = {child["name"]: (child["state"], child["text"]) for child in family(folder, state_of(folder))["children"]}
    assert told["join"] == ("waiting", "")
    child_ended(folder, ids["right"], 1, ChildEnd("failed", 3, "exit", "no model"), place)
    state = state_of(folder)
    assert not state.ended
    assert "  join             not started: right failed" in describe(folder, state)
    client_journal(folder.journal).append("cancel_requested", by="a person")
    child_ended(folder, ids["left"], 1, ChildEnd("cancelled", 1, "cancelled", ""), place)
    assert "  join             not started: right failed" in describe(folder, state_of(folder))
    join = child_folder(folder, read_graph(folder).children[-1])
    assert "state       not started: right failed" in describe(join, state_of(join), "queued")
    document = page_document(Reading(join))
    assert (document["state"], document["text"]) == ("not started", "right failed")
    assert "it waits for its nodes" not in str(document["missing"])


def test_the_page_of_a_run_with_steps_shows_them_and_waits_for_nothing_once_it_has_ended(job):
    folder, ids, place = job(STEPS)
    begin(folder, place)
    child_ended(folder, ids["prepare"], 1, DONE, place)
    with ServedRuns(folder.root.parent) as server, chromium() as browser:
        document = httpx.get(f"{server.url}/api/runs/{folder.id}", timeout=60).json()
        assert document["missing"] == []
        tab = WatchedPage(browser, server.url, viewport={"width": 1000, "height": 1400})
        page = tab.open(f"#/run/{folder.id}")
        rows = page.get_by_role("region", name="Steps").get_by_role("row")
        expect(rows.nth(1)).to_contain_text("failed")
        expect(rows.nth(4)).to_contain_text("prepare failed")
        expect(page.locator("main")).not_to_contain_text("yet")
        rows.nth(1).get_by_role("link", name="prepare").click()
        expect(page.get_by_role("link", name=folder.id)).to_be_visible()
        page = tab.open(f"#/run/{folder.id}/heat")
        expect(page.locator("main")).to_contain_text("Nothing was sampled.")
        tab.close()
        assert not tab.faults


def test_a_run_below_another_is_found_by_its_id_and_not_through_links(job, tmp_path):
    folder, ids, _ = job(STEPS)
    shelf = RunLibrary([folder.root.parent])
    assert shelf.folder(ids["join"]).root == folder.root / "children" / ids["join"]
    outside = tmp_path / "outside"
    (folder.root / "children").rename(outside)
    (folder.root / "children").symlink_to(outside)
    for known in (shelf, RunLibrary([folder.root.parent])):
        with pytest.raises(RunNotFound):
            known.folder(ids["join"])


def test_what_is_done_is_skipped_until_its_input_or_its_output_changes(job, tmp_path):
    two = '[steps]\na = { run = "true", outputs = ["out"], inputs = ["a.py"] }\nb = { run = "true", after = "a", inputs = ["a.py"] }\n'
    folder, ids, place = job(two)
    begin(folder, place)
    (tmp_path / "job/out").write_text("x")
    child_ended(folder, ids["a"], 1, DONE, place)
    child_ended(folder, ids["b"], 1, DONE, place)
    again, _, place = job(two)
    assert begin(again, place) == []
    assert state_of(again).state == "finished"
    assert [entry["state"] for entry in state_of(again).children] == ["skipped", "skipped"]
    (tmp_path / "job/out").write_text("y")
    other, _, place = job(two)
    assert begin(other, place) == ["a"]
    (tmp_path / "job/out").write_text("x")
    (tmp_path / "job/a.py").write_text("2")
    assert begin(job(two)[0], place) == ["a"]


def test_a_step_whose_script_or_a_module_of_it_was_edited_runs_again_though_nobody_named_them(job, tmp_path):
    one = '[steps]\na = { run = "python part.py", inputs = ["a.py"] }\n'
    (tmp_path / "job/part.py").write_text("import helper\n")
    (tmp_path / "job/helper.py").write_text("factor = 2\n")
    folder, ids, place = job(one)
    begin(folder, place)
    child_ended(folder, ids["a"], 1, DONE, place)
    assert begin(job(one)[0], place) == []
    (tmp_path / "job/helper.py").write_text("factor = 3\n")
    assert begin(job(one)[0], place) == ["a"]


def test_what_a_step_names_and_writes_itself_is_no_script_of_it(job, tmp_path):
    one = '[steps]\na = { run = "python part.py out.txt log.txt", inputs = ["a.py"], outputs = ["out.txt"] }\n'
    (tmp_path / "job/part.py").write_text("pass\n")
    folder, ids, place = job(one)
    begin(folder, place)
    (tmp_path / "job/out.txt").write_text("1")
    (tmp_path / "job/log.txt").write_text("1")
    child_ended(folder, ids["a"], 1, DONE, place)
    (tmp_path / "job/log.txt").write_text("2")
    assert begin(job(one)[0], place) == []


@pytest.mark.parametrize(
    ("toml", "script", "retries"),
    [
        ("[steps]\na = {}\n", "pass", 0),
        ('[test]\nrun = "python train.py"\n', "pass", 0),
        ("[restart]\nretries = 2\n[steps]\na = {}\n", "pass", 2),
        ("[steps]\na = {}\n", "import cordee\ncordee.checkpointer()", 3),
        ('[checkpoint]\nresume = "self"\n[steps]\na = {}\n', "pass", 3),
        ('[checkpoint]\nresume = "self"\n[steps]\na = { run = "python train.py" }\n', "pass", 0),
    ],
)
def test_what_could_only_begin_anew_is_tried_once_unless_somebody_asked_for_more(job, tmp_path, toml, script, retries):
    (tmp_path / "job/train.py").write_text(script)
    folder, _, _ = job(f'run = "python train.py"\n{toml}', run="")
    plan = plan_of(child_folder(folder, read_graph(folder).children[0]))
    assert plan["steps"][0]["restart"]["retries"] == retries


def test_the_job_starts_after_its_test_and_not_after_one_that_failed(job):
    folder, ids, place = job('[test]\nrun = "true"\n')
    begin(folder, place)
    assert place.placed == [ids["test"]]
    child_ended(folder, ids["test"], 1, DONE, place)
    assert place.placed == [ids["test"], folder.id]
    folder, ids, place = job('[test]\nrun = "true"\n')
    begin(folder, place)
    child_ended(folder, ids["test"], 1, ChildEnd("failed", 1, "retries", "rank 0 failed"), place)
    assert place.placed == [ids["test"]]
    assert state_of(folder).state == "failed"
    assert "the job was not submitted" in state_of(folder).text


def ended(folder, name: str, end: ChildEnd) -> None:
    """Have a child's own journal, too, say how it has ended."""
    told = {"state": end.state, "exit_code": end.exit_code, "reason": end.reason, "text": end.text}
    below = next(child_folder(folder, child) for child in read_graph(folder).children if child.name == name)
    client_journal(below.journal).append("ended", **told)


def test_a_child_that_somebody_resumes_counts_as_it_ends_then(job):
    folder, ids, place = job('[steps]\na = { run = "true" }\nb = { run = "true" }\n')
    begin(folder, place)
    child_ended(folder, ids["a"], 1, ChildEnd("cancelled", 1, "cancelled", "cancelled"), place)
    of_a_resume(child_folder(folder, read_graph(folder).children[0]))("7")
    child_ended(folder, ids["b"], 1, DONE, place)
    assert not state_of(folder).ended
    assert {each["name"]: each["state"] for each in state_of(folder).children} == {"a": "placed", "b": "finished"}
    child_ended(folder, ids["a"], 2, DONE, place)
    assert state_of(folder).state == "finished"


def test_a_child_that_has_ended_before_its_resume_could_be_told_is_over(job):
    folder, ids, place = job('[steps]\na = { run = "true" }\nb = { run = "true" }\n')
    begin(folder, place)
    child_ended(folder, ids["a"], 1, ChildEnd("failed", 1, "retries", "rank 0 failed"), place)
    tell = of_a_resume(child_folder(folder, read_graph(folder).children[0]))
    child_ended(folder, ids["a"], 2, DONE, place)
    tell("7")
    child_ended(folder, ids["b"], 1, DONE, place)
    assert state_of(folder).state == "finished"


def test_a_child_that_was_resumed_and_has_finished_after_its_parent_is_not_started_again(job):
    folder, ids, place = job('[steps]\na = { run = "true" }\nb = { run = "true" }\n')
    begin(folder, place)
    for name in ("a", "b"):
        end = ChildEnd("failed", 1, "retries", "rank 0 failed")
        ended(folder, name, end)
        child_ended(folder, ids[name], 1, end, place)
    client_journal(child_folder(folder, read_graph(folder).children[0]).journal).append("resume_requested")
    ended(folder, "a", DONE)
    client_journal(folder.journal).append("resume_requested")
    assert begin(folder, place) == ["b"]
    assert [each["state"] for each in state_of(folder).children if each["name"] == "a"] == ["finished"]


def test_nothing_starts_after_somebody_has_cancelled(job):
    folder, ids, place = job('[test]\nrun = "true"\n')
    begin(folder, place)
    client_journal(folder.journal).append("cancel_requested", by="a person")
    child_ended(folder, ids["test"], 1, DONE, place)
    assert place.placed == [ids["test"]]
    assert state_of(folder).state == "cancelled"


def test_a_test_reads_a_part_of_the_data_and_asks_for_less_time(job, tmp_path):
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for at in range(300):
        (corpus / f"{at}.txt").write_text("x")
    folder, _ids, _ = job(f'[need]\ntime = "72h"\n[data.corpus]\nfrom = "{corpus}"\n[test]\ndata = "1%"\n')
    below = child_folder(folder, read_graph(folder).children[0])
    import json

    plan = json.loads(below.plan.read_text())
    place = Path(plan["steps"][0]["tasks"]["env"]["CORDEE_DATA_CORPUS"])
    assert place.is_relative_to(below.root)
    assert len(list(place.iterdir())) == 3
    assert plan["steps"][0]["request"]["time_s"] == 1800
    assert plan["parent"] == str(folder.root)
    assert json.loads(folder.plan.read_text())["steps"][0]["tasks"]["env"]["CORDEE_DATA_CORPUS"] == str(corpus)


@pytest.mark.parametrize(
    ("toml", "words"),
    [
        ('[steps]\na = { after = "b" }\nb = { after = "a" }\n', "circle"),
        ('[steps]\na = { after = "c" }\n', "no other step"),
        ('[steps]\na = { outputs = ["x"] }\nb = { outputs = ["x"] }\n', "both leave x"),
        ('[test]\ndata = "0%"\n', "no part of the data"),
        ('[test]\ndata = { corpus = "1%" }\n', "no data set corpus"),
    ],
)
def test_what_cannot_be_is_refused_with_its_line(job, toml, words):
    with pytest.raises(DocumentError) as raised:
        job(toml)
    assert words in str(raised.value.text) + str(raised.value.findings)


def test_a_run_whose_steps_run_on_this_machine_runs(job, monkeypatch):
    """It has no processes of its own."""

    def stand(self, folders, *, age_s=30.0):
        return [Standing("running" if each.root.parent.name == FOLDER else "gone") for each in folders]

    monkeypatch.setattr(LocalSubmitter, "standings", stand)
    folder, _, place = job('[steps]\na = { run = "true" }\n')
    begin(folder, place)
    assert advise(collect_situation(folder)).where == "running"
