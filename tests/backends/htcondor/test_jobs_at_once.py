"""Runs below one parent are one submission, and those that HTCondor has not made a job yet are known."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from cordee.backends.htcondor import queue
from cordee.backends.htcondor.description import runs_in
from cordee.faces.cli import cancel
from cordee.job.submit import plan_of, submitter, submitter_of
from cordee.job.submit.prepare import create_run, prepare
from cordee.runs.children import child_folder, read_graph
from cordee.runs.folder import RunFolder
from cordee.runs.journal import JournalWriter, client_journal, read_journal
from cordee.runs.state import replay
from cordee.systems.advise.advice import advise
from cordee.systems.advise.collect import collect_situation

HERE = Path(__file__).parent
JOB = """
name = "t"
run = "python train.py {lr}"
[sweep]
jobs = 5
trials = 10
sampler = "random"
goal = "min loss"
lr = "0.1..1.0"
"""


@pytest.fixture
def pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the fake commands of a pool print."""
    folder = tmp_path / "pool"
    folder.mkdir()
    for name, text in {"queue": "", "factory": "", "history": "[ ]", "submitted": "7.0 - 7.4\n"}.items():
        (folder / name).write_text(text)
    monkeypatch.setenv("FAKE_HTCONDOR", str(folder))
    monkeypatch.setenv("PATH", os.pathsep.join([str(HERE / "fakes"), os.environ["PATH"]]))
    return folder


@pytest.fixture
def parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pool: Path) -> RunFolder:
    """A sweep over five jobs, of which two may wait in the queue."""
    (tmp_path / "condor.toml").write_text('scheduler = "htcondor"\n[htcondor]\nmax_idle = 2\n')
    monkeypatch.setenv("CORDEE_CLUSTERS_PATH", str(tmp_path))
    job = tmp_path / "job"
    job.mkdir()
    (job / "train.py").write_text("")
    (job / "cordee.toml").write_text(JOB)
    return create_run(prepare(str(job), "condor", {}, tmp_path / "runs"))


def below(parent: RunFolder) -> list[RunFolder]:
    graph = read_graph(parent)
    assert graph is not None
    return [child_folder(parent, child) for child in graph.children]


def asked(pool: Path, command: str) -> list[str]:
    return [line for line in (pool / "asked").read_text().splitlines() if line.startswith(command)]


def made(pool: Path, parent: RunFolder, count: int) -> None:
    """Have the queue hold the first jobs of the submission, and its cluster."""
    runs = [folder.id for folder in below(parent)]
    jobs = [{"ClusterId": 7, "ProcId": n, "JobStatus": 1, "CordeeRun": runs[n]} for n in range(count)]
    (pool / "queue").write_text(json.dumps(jobs))
    path = str(parent.submit / "htcondor-jobs-1.sub")
    (pool / "factory").write_text(json.dumps([{"ClusterId": 7, "JobMaterializeNextProcId": count, "CordeeJobs": path}]))


def submit(parent: RunFolder) -> None:
    submitter_of(parent).submit(parent, plan_of(parent))


def test_children_that_ask_for_the_same_are_one_submission(parent, pool):
    submit(parent)
    together, graph = asked(pool, "condor_submit")
    assert together.endswith("/submit/htcondor-jobs-1.sub")
    assert graph.endswith("/submit/graph.sub")
    text = (parent.submit / "htcondor-jobs-1.sub").read_text()
    assert runs_in(text) == [folder.id for folder in below(parent)]
    assert "\nmax_idle = 2\n" in text
    assert '+CordeeRun = "$(run)"' in text
    states = [replay(read_journal(folder.journal), folder.id) for folder in below(parent)]
    assert [state.job for state in states] == [f"7.{number}" for number in range(5)]
    first, second = (folder.submit / "code.tar.gz" for folder in below(parent)[:2])
    assert first.samefile(second)  # code travels to each and lies here once


def test_check_says_that_children_which_ask_for_the_same_are_one_submission(parent, tmp_path):
    told = prepare(str(tmp_path / "job"), "condor", {}, tmp_path / "runs").text(explain=False).splitlines()
    assert told[0] == "runs         side by side, each a run of its own"
    assert sum("one submission, with a job for each" in line for line in told) == 1


def test_a_submission_whose_answer_was_lost_is_not_repeated(parent, pool):
    (pool / "submitted").unlink()  # the first try fails
    with pytest.raises(Exception, match="HTCondor refused"):
        submit(parent)
    made(pool, parent, 2)
    client_journal(parent.journal).append("resume_requested")
    submit(parent)
    assert len(asked(pool, "condor_submit")) == 1
    state = replay(read_journal(parent.journal), parent.id)
    assert [child["job"] for child in state.children] == [f"7.{number}" for number in range(5)]


def test_what_is_not_made_yet_waits_and_the_parent_says_how_many(parent, pool):
    submit(parent)
    made(pool, parent, 2)
    before = len(asked(pool, "condor_q"))
    standings = submitter("htcondor").standings(below(parent), age_s=0.0)
    assert len(asked(pool, "condor_q")) - before <= 2
    assert [standing.state for standing in standings] == ["waiting"] * 5
    assert [standing.job for standing in standings] == [f"7.{number}" for number in range(5)]
    assert "not yet in the queue" in standings[4].reason
    assert "not yet in the queue" not in standings[0].reason
    assert "of its runs 5 waiting" in submitter_of(parent).standing(parent, age_s=0.0).reason


def test_a_cancelled_child_that_is_not_made_is_gone(parent, pool):
    submit(parent)
    made(pool, parent, 2)
    last = below(parent)[4]
    client_journal(last.journal).append("ended", state="cancelled", exit_code=1, reason="cancelled", text="")
    assert submitter("htcondor").standing(last, age_s=0.0).state == "gone"
    (pool / "factory").write_text((pool / "factory").read_text().replace("}]", ', "JobMaterializePaused": 2}]'))
    assert submitter("htcondor").standing(below(parent)[3], age_s=0.0).state == "gone"


def test_children_that_left_the_queue_are_asked_about_at_once(parent, pool):
    submit(parent)
    runs = [folder.id for folder in below(parent)]
    ended = [{"ClusterId": 7, "ProcId": n, "JobStatus": 4, "ExitCode": 0, "CordeeRun": runs[n]} for n in range(5)]
    (pool / "history").write_text(json.dumps(ended))
    standings = submitter("htcondor").standings(below(parent), age_s=0.0)
    assert [standing.reason for standing in standings] == ["COMPLETED"] * 5
    assert len(asked(pool, "condor_history")) == 1


def test_a_child_that_was_planned_with_another_has_nothing_of_it(parent, pool):
    first, second = below(parent)[:2]
    assert first.id not in second.plan.read_text()
    tasks = [len((folder.root / "tasks" / "tasks-0.jsonl").read_text().splitlines()) for folder in (first, second)]
    assert tasks == [3, 3]  # a head and two trials


def running(pool: Path, runs: list[RunFolder]) -> None:
    """Have the jobs of these runs run."""
    jobs = [
        {"ClusterId": 7, "ProcId": number, "JobStatus": 2, "NumShadowStarts": 1, "CordeeRun": folder.id}
        for number, folder in enumerate(runs)
    ]
    (pool / "queue").write_text(json.dumps(jobs))


def test_a_cancel_of_many_runs_waits_for_all_at_once_and_says_how_many_have_ended(parent, pool, monkeypatch):
    submit(parent)
    runs = below(parent)
    running(pool, runs)
    before, said = len(asked(pool, "condor_q")), []

    def end(text: str) -> None:
        said.append(text)
        for folder in runs:
            client_journal(folder.journal).append("ended", state="cancelled", exit_code=1, reason="cancelled", text="")
        (pool / "queue").write_text("")

    monkeypatch.setattr(cancel, "say", end)
    done = CliRunner().invoke(cancel.command, [str(parent.root)])
    assert done.exit_code == 0, done.output
    assert said[0].startswith("cordee: 5 of its runs were asked to end; 0 have ended; waiting up to ")
    assert done.stdout.endswith(": cancelled\n")
    assert len(asked(pool, "condor_q")) - before <= 6


def test_the_time_of_a_cancel_is_that_of_all_its_runs_and_then_they_are_killed_if_that_was_asked_for(parent, pool):
    submit(parent)
    running(pool, below(parent))
    waited = CliRunner().invoke(cancel.command, [str(parent.root), "--wait", "0.2"])
    assert str(waited.exception).startswith("the run has not ended within 0 s")
    (pool / "removed").touch()
    done = CliRunner().invoke(cancel.command, [str(parent.root), "--wait", "0.2", "--now"])
    assert done.exit_code == 0, done.output
    ends = [replay(read_journal(folder.journal), folder.id) for folder in below(parent)]
    assert {(end.state, end.text) for end in ends} == {("cancelled", "all its processes were killed")}


def test_a_run_that_waits_to_go_on_is_not_said_to_have_never_run(parent, pool):
    submit(parent)
    runs = below(parent)
    running(pool, runs)
    (pool / "queue").write_text((pool / "queue").read_text().replace('"JobStatus": 2', '"JobStatus": 1'))
    (pool / "removed").touch()
    JournalWriter(runs[0].journal, "supervisor-1", 1).append("supervisor_started", epoch=1, segment=1, job="7.0")
    done = CliRunner().invoke(cancel.command, [str(parent.root)])
    assert done.exit_code == 0, done.output
    ends = [replay(read_journal(folder.journal), folder.id).text for folder in runs]
    assert ends == ["cancelled while it waited to go on", *["cancelled while it waited in the queue"] * 4]


def test_advice_on_a_run_is_that_on_those_below_it_which_do_not_go_on(parent, pool):
    submit(parent)
    running(pool, below(parent))
    jobs = json.loads((pool / "queue").read_text())
    for job in jobs[1:4]:
        job |= {"JobStatus": 5, "HoldReasonCode": 34, "HoldReason": "Error from slot1@node1: Job has gone over memory"}
    (pool / "queue").write_text(json.dumps(jobs))
    before = len(asked(pool, "condor"))
    advice = advise(collect_situation(parent))
    assert len(asked(pool, "condor")) - before <= 4  # about the run, those below it, and the first of them
    assert advice.verdict.startswith("it runs, but part-2 is held because it used more memory than")
    assert advice.verdict.endswith("; 2 more likewise")
    (finding,) = advice.findings
    assert (finding.rule, finding.evidence["child"]) == ("below", "part-2")
    assert "need.memory" in finding.evidence["change"]
    failed = {"state": "failed", "exit_code": 1, "reason": "child", "outcome": {}}
    client_journal(parent.journal).append("child_ended", child="part-1", text="it broke", **failed)
    client_journal(below(parent)[0].journal).append("ended", **failed, text="it broke")
    texts = [finding.text for finding in advise(collect_situation(parent)).findings]
    assert [text.split()[:2] for text in texts] == [["part-2", "is"], ["part-1", "failed"]]


def test_advice_names_the_first_few_of_those_below_and_counts_the_others(parent, pool):
    submit(parent)
    running(pool, below(parent))
    jobs = json.loads((pool / "queue").read_text())
    for number, job in enumerate(jobs):
        job |= {"JobStatus": 5, "HoldReasonCode": 1, "HoldReason": f"by somebody: {number}"}
    (pool / "queue").write_text(json.dumps(jobs))
    texts = [finding.text for finding in advise(collect_situation(parent)).findings]
    assert [text.split()[0] for text in texts] == ["part-1", "part-2", "part-3", "2"]
    assert texts[-1] == "2 more runs below it do not go on for other reasons"


def test_a_job_that_is_made_while_its_place_is_asked_is_not_taken_for_gone(parent, pool, monkeypatch):
    submit(parent)
    made(pool, parent, 3)
    asked_for_others = queue._not_made

    def make_one_more(most_s):
        made(pool, parent, 4)
        return asked_for_others(most_s)

    monkeypatch.setattr(queue, "_not_made", make_one_more)
    assert {job.run for job in queue.jobs_of(below(parent))} == {folder.id for folder in below(parent)}


def test_a_child_that_nobody_knows_for_a_moment_has_not_failed(parent, pool):
    submit(parent)
    (pool / "queue").write_text("")
    (pool / "factory").write_text("")
    submitter_of(parent).standing(parent, age_s=0.0)
    assert not any(replay(read_journal(folder.journal), folder.id).ended for folder in below(parent))
