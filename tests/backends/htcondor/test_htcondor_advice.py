"""Advice on runs of HTCondor, from answers that a pool of version 23.9.6 gave for each of them."""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from cordee.backends.htcondor import facts as facts_module
from cordee.backends.htcondor.facts import read_analysis
from cordee.backends.htcondor.refusals import explain_refusal
from cordee.backends.htcondor.submitter import HTCondorSubmitter
from cordee.core.errors import CordeeError
from cordee.faces.cli import cancel, runs, show
from cordee.job.submit.prepare import create_run, prepare
from cordee.runs.folder import RunFolder
from cordee.runs.journal import JournalWriter, client_journal
from cordee.systems.advise.advice import Advice, advise
from cordee.systems.advise.collect import collect_situation

HERE = Path(__file__).parent
RECORDED = json.loads((HERE / "recorded.json").read_text())
AWAY = (
    "Error: Can't find address of local schedd\n\nExtra Info: If the condor_schedd is running on the machine you are trying to "
    "query and you still see the error, the most likely cause is that you have setup a personal Condor, you have not defined "
    "SCHEDD_NAME in your condor_config file.\n"
)


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """A run that is meant for HTCondor."""
    job = tmp_path / "job"
    job.mkdir()
    (job / "train.py").write_text("")
    (job / "cordee.toml").write_text('name = "t"\nrun = "python train.py"\n')
    folder = create_run(prepare(str(job), "local", {}, tmp_path / "runs"))
    plan = json.loads(folder.plan.read_text())
    folder.plan.write_text(json.dumps({**plan, "backend": "htcondor"}))
    (asked,) = folder.journal.glob("client*")
    asked.write_text(asked.read_text().replace('"local"', '"htcondor"'))
    return folder


class Pool:
    """HTCondor's commands, which print what was recorded."""

    def __init__(self, folder: Path, run: RunFolder) -> None:
        self.folder, self.run = folder, run
        folder.mkdir()
        self.say(queue="", history="[ ]", removed="")

    def say(self, **answers: str) -> None:
        """Let commands print texts."""
        for name, text in answers.items():
            (self.folder / name).write_text(text)

    def show(self, case: str) -> None:
        """Let commands print what they did of a case; what is waited for was submitted long ago."""
        recorded = RECORDED[case]
        jobs = json.loads(json.dumps(recorded["job"]).replace("RUN", self.run.id))
        self.say(**{"queue" if jobs[0]["JobStatus"] not in (3, 4) else "history": json.dumps(jobs)})
        if "why" in recorded:
            self.say(why="\n".join(recorded["why"]), machines=json.dumps(recorded["machines"]))

    def edit(self, name: str, **changes: object) -> None:
        """Change attributes of the first ad of an answer."""
        ads = json.loads((self.folder / name).read_text())
        ads[0].update(changes)
        self.say(**{name: json.dumps(ads)})

    def away(self) -> None:
        """Let the access point be away."""
        (self.folder / "queue").unlink()
        self.say(error=AWAY)

    @property
    def asked(self) -> list[str]:
        """The commands that were asked so far."""
        return [line.split()[0] for line in (self.folder / "asked").read_text().splitlines()]


@pytest.fixture
def pool(run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pool:
    pool = Pool(tmp_path / "pool", run)
    monkeypatch.setenv("FAKE_HTCONDOR", str(pool.folder))
    monkeypatch.setenv("PATH", f"{HERE / 'fakes'}:{Path(sys.executable).parent}:/usr/bin:/bin")
    client_journal(run.journal).append("placed", job="7.0")
    return pool


def advice_of(run: RunFolder) -> Advice:
    return advise(collect_situation(run))


WAITING = [
    ("memory", "too-much-memory", "as much memory as it asks for", {"need.memory": "4GB"}),
    ("bigdisk", "too-much-disk", "as much disk as it asks for", {"need.disk": "4GB"}),
    ("manycpus", "too-much-cpus", "as many CPUs as it asks for", {"need.cpus_per_rank": 2}),
    ("nogpu", "no-gpus", "no machine of the pool has a GPU", None),
    ("few-gpus", "too-much-gpus", "as many GPUs as it asks for", {"need.gpus_per_node": 1}),
    ("old-gpus", "no-such-gpu", "no machine of the pool has a GPU as it asks for", None),
    ("req", "requirements", "HasFastDisk == true and OpSysMajorVer >= 99", None),
    ("nosif", "no-container-engine", "none meets TARGET.HasSIF", None),
    ("busy", "in-use", "the 2 machines of the pool that are large enough are in use", None),
    ("gpubusy", "in-use", "the 2 machines of the pool that are large enough are in use", None),
    ("evicted", "machines-refuse", "by rules of their own (START)", None),
]


@pytest.mark.parametrize(("case", "rule", "words", "change"), WAITING)
def test_a_run_that_waits_is_told_which_condition_no_machine_meets(run, pool, case, rule, words, change):
    pool.show(case)
    advice = advice_of(run)
    assert advice.where == "waiting"
    assert advice.verdict.startswith("it waits because ")
    assert words in advice.verdict
    assert advice.findings[0].rule == rule
    assert (advice.findings[0].evidence or {}).get("change") == change
    assert not advice.facts["unknown"]
    if change:
        assert next(iter(change)).split(".")[1] in (advice.findings[0].next or "")


def test_a_pool_without_a_container_engine_is_not_told_to_use_another_kind_of_image(run, pool):
    pool.show("nosif")
    why = pool.folder / "why"
    why.write_text(why.read_text().replace("2  TARGET.HasContainer", "0  TARGET.HasContainer"))
    advice = advice_of(run)
    assert advice.verdict == "it waits because no machine of the pool has a container engine"
    assert [finding.rule for finding in advice.findings] == ["no-container-engine"]
    assert "without environment" in (advice.findings[0].next or "")


def test_what_is_asked_for_stands_beside_the_most_that_a_machine_has(run, pool):
    pool.show("memory")
    cause = advice_of(run).findings[0]
    assert (cause.given, cause.allowed) == ("64 GB", "at most 4.29 GB (2 machines)")
    assert cause.next == 'set [need] memory = "4GB"'


def test_a_busy_pool_is_not_taken_for_one_that_is_too_small(run, pool):
    """What is left of a machine is what its slot has: no slot may meet the condition while machines are in use."""
    pool.show("busy")
    why = (pool.folder / "why").read_text()
    pool.say(why=why.replace("2  TARGET.Memory >= RequestMemory", "0  TARGET.Memory >= RequestMemory"))
    assert [finding.rule for finding in advice_of(run).findings] == ["in-use"]


def test_gpus_that_are_in_use_are_not_taken_for_gpus_of_another_kind(run, pool):
    pool.show("old-gpus")
    machines = json.loads((pool.folder / "machines").read_text())
    pool.say(machines=json.dumps([{**machine, "GPUs": 0} for machine in machines]))
    assert advice_of(run).findings[0].rule == "in-use"
    pool.say(machines=json.dumps([{**machine, "GPUs": 0, "GPUs_GlobalMemoryMb": 16000} for machine in machines]))
    assert advice_of(run).findings[0].rule in ("no-such-gpu", "too-large")


def test_an_evicted_run_goes_on_by_itself_from_what_was_saved(run, pool):
    pool.show("evicted")
    assert any("it begins anew" in finding.text for finding in advice_of(run).findings)
    client_journal(run.journal).append("checkpoint_seen", name="step-0010", step=10)
    evicted = next(finding for finding in advice_of(run).findings if finding.rule == "evicted")
    assert evicted.text == "it had to leave its machine; it goes on when there is another, from step-0010"
    assert evicted.severity == "info"


def test_a_run_that_was_just_submitted_is_not_explained_yet(run, pool):
    pool.show("busy")
    pool.edit("machines", Cpus=2, Memory=4096, Disk=4000000)
    pool.edit("queue", QDate=time.time() - 5.0, NumShadowStarts=0)
    assert advice_of(run).findings[0].rule == "none"
    pool.edit("queue", QDate=time.time() - 3600.0)
    assert advice_of(run).findings[0].rule == "not-matched"
    pool.edit("queue", LastRejMatchReason="insufficient priority")
    assert advice_of(run).findings[0].text == "the pool gives its machines to others first"


HELD = [
    ("mem", "memory-exceeded", {"need.memory": "1152MB"}),
    ("site", "memory-exceeded", {"need.memory": "1000MB"}),
    ("disk", "disk-exceeded", {"need.disk": "1152MB"}),
    ("missing", "input-missing", None),
    ("nolink", "output-link", None),
    ("noout", "output-failed", None),
    ("noprog", "not-started", None),
    ("nopy", "no-python", None),
    ("jobdur2", "too-long", None),
    ("person", "held-by-person", None),
]


@pytest.mark.parametrize(("case", "rule", "change"), HELD)
def test_a_held_run_is_told_why_and_which_line_to_change(run, pool, case, rule, change):
    pool.show(case)
    advice = advice_of(run)
    assert advice.where == "waiting"
    assert advice.verdict.startswith("it is held because ")
    cause = advice.findings[0]
    assert cause.rule == rule
    assert cause.evidence is not None
    assert cause.evidence.get("change") == change
    assert cause.severity == ("warn" if rule == "held-by-person" else "error")


@pytest.mark.parametrize("case", [case for case in RECORDED if RECORDED[case]["job"][0]["JobStatus"] in (5, 7)])
def test_show_and_advise_say_the_same_words(run, pool, case):
    pool.show(case)
    standing = HTCondorSubmitter().standing(run, age_s=0.0)
    cause = advice_of(run).findings[0]
    assert (standing.reason, standing.next) == (cause.text, cause.next)


def test_a_suspended_run_waits_and_nothing_is_to_be_done(run, pool):
    pool.show("suspend")
    advice = advice_of(run)
    assert advice.where == "waiting"
    assert advice.findings[0].severity == "info"


def test_a_silent_machine_is_told_while_the_run_still_counts_as_running(run, pool):
    pool.show("suspend")
    pool.edit("queue", JobStatus=2, JobDisconnectedDate=1795873000)
    advice = advice_of(run)
    assert advice.where == "starting"
    assert "its machine has not answered since 2026-" in advice.verdict


def test_a_run_that_was_removed_says_by_whom_and_what_it_can_go_on_from(run, pool):
    pool.show("removed")
    advice = advice_of(run)
    assert advice.where == "cancelled"
    assert "its job was removed: wrong data (by user nobody)" in advice.verdict
    assert "no checkpoint of it is here" in advice.verdict
    for name in ("step-9", "step-10"):
        (run.checkpoints / name).mkdir(parents=True)
    client_journal(run.journal).append("checkpoint_seen", name="step-11", step=11)
    assert f"`cordee resume {run.id}` continues it from step-10" in advice_of(run).verdict


def test_a_first_process_that_a_signal_ended_is_told_with_the_signal(run, pool):
    pool.show("sig")
    advice = advice_of(run)
    assert advice.where == "failed"
    assert "the first process of its job was ended by a signal (signal 11)" in advice.verdict


def test_a_job_that_nobody_remembers_is_gone(run, pool):
    assert advice_of(run).where == "failed"


def test_an_access_point_that_is_away_is_told_and_nothing_is_concluded(run, pool):
    pool.away()
    advice = advice_of(run)
    assert advice.verdict == "it waits because the access point of HTCondor does not answer"
    assert advice.facts["unknown"] == ["your jobs: condor_q: Error: Can't find address of local schedd"]


def test_a_pool_that_does_not_answer_in_time_leaves_unknown_why_nothing_takes_the_run(run, pool, monkeypatch):
    pool.show("busy")
    monkeypatch.setattr(facts_module, "_ANALYSIS_S", 0.0)
    advice = advice_of(run)
    assert advice.findings[0].rule == "in-use"
    assert any("no answer within 0 s" in text for text in advice.facts["unknown"])
    monkeypatch.setattr(facts_module, "_COMMAND_S", 1.0)
    pool.say(slow="")
    assert advice_of(run).facts["unknown"] == ["your jobs: condor_q: no answer within 1 s"]


def test_machines_are_asked_about_only_for_a_run_that_waits(run, pool):
    pool.show("mem")
    advice_of(run)
    assert pool.asked == ["condor_q"]
    pool.show("busy")
    advice_of(run)
    assert pool.asked[1:] == ["condor_q", "condor_status", "condor_q"]


def test_conditions_that_are_joined_are_told_as_one():
    either = "[0]           0  HasFastDisk == true\n[1]           0  OpSysMajorVer >= 99\n[2]           0  [0] || [1]\n"
    assert read_analysis(either).conditions == ("HasFastDisk == true || OpSysMajorVer >= 99",)
    met = either.replace("[1]           0", "[1]           3").replace("[2]           0", "[2]           3")
    assert read_analysis(met).conditions == ()
    both = '[0]           3  regexp("node1",Name)\n[1]           2  regexp("node2",Name)\n[2]           0  [0] && [1]\n'
    assert read_analysis(both).conditions == ('regexp("node1",Name) && regexp("node2",Name)',)
    one = both.replace("[1]           2", "[1]           0")
    assert read_analysis(one).conditions == ('regexp("node2",Name)',)


def test_text_that_is_no_analysis_says_nothing():
    assert read_analysis("") == read_analysis("condor_q: unknown option\n") == facts_module.PoolAnalysis()


@pytest.mark.parametrize(
    ("said", "rule"),
    [
        ('ERROR: Setting job owner to "root" is not permitted', "refused-root"),
        ("ERROR: Failed to create proc Number of submitted jobs would exceed MAX_JOBS_PER_OWNER", "refused-quota"),
        ("ERROR: Parse error in expression: Requirements = (HasFastDisk == && true)) && x", "refused-requirements"),
        ("ERROR: Parse error in expression: My Bad = x", "refused-attribute"),
        ('Can\'t find "condor" in the password file and CONDOR_IDS not defined in condor_config', "refused-user"),
        ("condor_submit: not found: HTCondor's commands are not on PATH", "refused-missing"),
        ("ERROR: the moon is full", None),
    ],
)
def test_a_refusal_is_told_with_what_to_change(said, rule):
    found = explain_refusal(said)
    assert (found.rule if found else None) == rule
    assert found is None or found.next


def test_a_refused_run_failed_because_of_what_was_said(run, pool):
    text = "HTCondor refused the run: ERROR: Failed to create proc Number of submitted jobs would exceed MAX_JOBS_PER_OWNER"
    client_journal(run.journal).append("ended", state="failed", exit_code=2, reason="refused", text=text)
    assert advice_of(run).verdict == "it failed because the pool limits how many jobs one person has in the queue"


def test_a_run_that_ended_and_did_not_come_home_is_held_in_all_words(run, pool):
    pool.show("noout")
    client_journal(run.journal).append("ended", state="finished", exit_code=0, reason="finished", text="")
    held = HTCondorSubmitter().standing(run, age_s=0.0)
    assert advice_of(run).verdict == f"it has ended (finished), and is held because {held.reason}"
    shown = CliRunner().invoke(show.command, [str(run.root)]).output
    listed = CliRunner().invoke(runs.command, ["--runs", str(run.root.parent)]).output
    assert f"held in the queue: {held.reason}" in shown
    assert re.search(rf"^{run.id} +held .*held in the queue: {re.escape(held.reason)}", listed, re.MULTILINE)
    asked = CliRunner().invoke(cancel.command, [str(run.root)]).exception
    assert isinstance(asked, CordeeError)
    assert held.reason in asked.text
    assert "cordee cancel --now" in str(asked.next)
    assert CliRunner().invoke(cancel.command, [str(run.root), "--now"]).exit_code == 0
    assert "condor_rm" in pool.asked


def test_a_run_that_came_home_is_not_asked_about_in_the_history(run, pool):
    client_journal(run.journal).append("ended", state="finished", exit_code=0, reason="finished", text="")
    assert "finished" in CliRunner().invoke(show.command, [str(run.root)]).output
    assert " finished " in CliRunner().invoke(runs.command, ["--runs", str(run.root.parent)]).output
    assert set(pool.asked) == {"condor_q"}


def test_a_removed_job_ends_its_run_at_the_next_look(run, pool):
    (run.journal / "supervisor-1.jsonl").touch()  # it gave a sign of life just now
    pool.show("removed")
    pool.edit("history", ClusterId=7)
    shown = CliRunner().invoke(show.command, [str(run.root)]).output
    assert re.search(r"^state +cancelled: .*wrong data \(by user nobody\)", shown, re.MULTILINE)


def test_what_a_removed_job_saved_at_last_is_not_promised(run, pool):
    """It took its removal for an eviction, and what it left then went with it."""
    supervisor = JournalWriter(run.journal, "supervisor-1", 1)
    supervisor.append("supervisor_started", epoch=1, segment=1, job="7.0")
    for name in ("step-4", "step-6"):
        supervisor.append("checkpoint_seen", name=name, step=int(name[-1]))
    ended = {"segment": 1, "reason": "preempted", "checkpoint": "step-6", "progress": True, "next": "requeue"}
    supervisor.append("segment_ended", **ended)
    run.checkpoints.mkdir(exist_ok=True)
    (run.checkpoints / "step-5").touch()
    pool.show("removed")
    pool.edit("history", ClusterId=7, LastJobStatus=2)
    shown = CliRunner().invoke(show.command, [str(run.root)]).output
    assert re.search(r"^checkpoint +step-5$", shown, re.MULTILINE)
    assert "wanted back" not in shown
    assert "queued again" not in shown


def test_a_cancel_says_at_once_what_it_waits_for(run, pool):
    pool.show("suspend")
    pool.edit("queue", JobStatus=2, JobDisconnectedDate=1795873000)
    asked = CliRunner().invoke(cancel.command, [str(run.root), "--wait", "0.2"])
    assert "its machine has not answered since 2026-" in asked.stderr
    assert isinstance(asked.exception, CordeeError)
    assert "it knows that it is to end" in str(asked.exception.next)


@pytest.mark.parametrize(
    ("attribute", "words"), [("TransferringInput", "what it needs"), ("TransferringOutput", "its results")]
)
def test_what_travels_at_the_moment_is_told(run, pool, attribute, words):
    pool.show("suspend")
    pool.edit("queue", JobStatus=2, **{attribute: True})
    advice = advice_of(run)
    assert advice.verdict.startswith(f"it starts: {words}")
    assert words in HTCondorSubmitter().standing(run, age_s=0.0).reason


@pytest.mark.parametrize(
    ("event", "said", "state"),
    [
        ("009", "Job was aborted.\n\tvia condor_rm (by user ada)", "cancelled"),
        ("005", "Job terminated.\n\t(1) Normal termination (return value 7)", "failed"),
        ("005", "Job terminated.\n\t(0) Abnormal termination (signal 9)", "failed"),
    ],
)
def test_a_job_that_the_history_has_forgotten_has_its_end_in_its_event_log(run, pool, event, said, state):
    (run.journal / "supervisor-1.jsonl").touch()
    other = "009 (017.000.000) 2026-11-26 00:24:30 Job was aborted.\n\tby another\n...\n"
    (run.submit / "htcondor.log").write_text(f"{event} (007.000.000) 2026-11-26 00:24:30 {said}\n...\n{other}")
    shown = CliRunner().invoke(show.command, [str(run.root)]).output
    assert re.search(rf"^state +{state}: .*{re.escape(said.splitlines()[1].strip())}", shown, re.MULTILINE)


def test_what_went_with_a_lost_machine_is_not_taken_for_kept(run, pool):
    supervisor = JournalWriter(run.journal, "supervisor-1", 1)
    supervisor.append("supervisor_started", epoch=1, segment=1, job="7.0")
    supervisor.append("checkpoint_seen", name="step-5", step=5)
    pool.show("evicted")
    pool.edit("queue", NumShadowStarts=1, JobDisconnectedDate=0)
    assert "step-5" in HTCondorSubmitter().would_lose(run)
    pool.edit("queue", JobCurrentStartDate=1795872000, JobDisconnectedDate=1795873000)
    assert HTCondorSubmitter().would_lose(run) == ""
