"""`cordee advise` on a real Slurm: jobs that wait, that end badly, and that are refused, each for its reason."""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cordee.backends.slurm.node.commands import SlurmError, job_record, run_command
from cordee.backends.slurm.refusals import explain_refusal
from cordee.core.errors import SubmitError
from cordee.faces.cli.commands import COMMANDS
from cordee.job.submit import plan_of, submitter
from cordee.job.submit.prepare import create_run, prepare
from cordee.runs.folder import RunFolder
from cordee.runs.journal import read_journal
from cordee.runs.state import replay
from cordee.systems.advise.advice import Advice, advise
from cordee.systems.advise.collect import collect_situation
from cordee.testing.patience import wait_until
from cordee.testing.slurm import DisposableSlurm

pytestmark = pytest.mark.usefixtures("real")

_SETTINGS = {
    "AccountingStorageEnforce": "limits,qos,associations",
    "JobAcctGatherParams": "OverMemoryKill",
    "PriorityType": "priority/multifactor",
}
_QOS = (
    "MaxSubmitJobsPerUser=3",
    "MaxJobsPerUser=1",
    "MaxWall=00:10:00",
    "MaxTRESPerUser=gres/gpu=2",
)
_WAIT_S = 60.0


@pytest.fixture(scope="module")
def accounted() -> Iterator[DisposableSlurm]:
    """A Slurm with accounting: account `research`, QOS `tiny` with limits, four nodes of 8 CPUs and 4 GPUs."""
    with DisposableSlurm(
        Path(tempfile.mkdtemp(prefix="cordee-advise-")), gpus=4, accounting=True, settings=_SETTINGS
    ) as cluster:
        cluster.command("sacctmgr", "--immediate", "add", "qos", "tiny")
        cluster.command("sacctmgr", "--immediate", "modify", "qos", "tiny", "set", *_QOS)
        cluster.command("sacctmgr", "--immediate", "modify", "user", getpass.getuser(), "set", "qos+=tiny")
        yield cluster


@pytest.fixture
def cluster(accounted: DisposableSlurm, monkeypatch: pytest.MonkeyPatch) -> Iterator[DisposableSlurm]:
    """The Slurm with accounting, idle and healthy, which the environment leads to."""
    for name in list(os.environ):
        if name.startswith(("SLURM_", "SBATCH_", "SQUEUE_", "SINFO_", "SACCT_")):
            monkeypatch.delenv(name)
    for name, value in accounted.env.items():
        monkeypatch.setenv(name, value)
    yield accounted
    accounted.clear()
    accounted.heal()


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """A run that is meant for Slurm."""
    job = tmp_path / "job"
    job.mkdir()
    (job / "train.py").write_text("")
    (job / "cordee.toml").write_text('name = "t"\nrun = "python train.py"\n')
    return made(job, tmp_path)


def made(job: Path, tmp_path: Path) -> RunFolder:
    """Return the run of a job on the cluster `slurm`, not submitted."""
    profiles = tmp_path / "clusters"
    profiles.mkdir()
    (profiles / "slurm.toml").write_text('name = "slurm"\nscheduler = "slurm"\n')
    os.environ["CORDEE_CLUSTERS_PATH"] = str(profiles)
    try:
        return create_run(prepare(str(job), "slurm", {}, tmp_path / "runs"))
    finally:
        del os.environ["CORDEE_CLUSTERS_PATH"]


def submit(run: RunFolder, *options: str, script: str = "sleep 300") -> str:
    """Submit a job of the run by plain sbatch and return its number.

    Raises:
        SlurmError: sbatch refused it.
    """
    output = f"--output={run.submit}/slurm-%j.out"
    argv = ["sbatch", "--parsable", f"--comment=cordee:{run.id}", output, *options, "--wrap", script]
    return run_command(argv).strip()


def until(job: str, condition: Callable[[dict[str, str]], Any]) -> None:
    """Wait until what the controller says of a job fulfils a condition."""
    wait_until(lambda: condition(job_record(job) or {}), _WAIT_S, said=lambda: job_record(job), every_s=0.1)


def reason(wanted: str) -> Callable[[dict[str, str]], bool]:
    return lambda record: record.get("Reason", "").startswith(wanted)


def ended(record: dict[str, str]) -> bool:
    return record.get("JobState") not in ("PENDING", "RUNNING", "COMPLETING")


def advised(run: RunFolder) -> Advice:
    return advise(collect_situation(run))


@pytest.mark.parametrize(
    ("options", "code", "rule", "change"),
    [
        (["--hold"], "JobHeldUser", "waits-jobhelduser", None),
        (["--partition=debug", "--time=40"], "PartitionTimeLimit", "waits-partitiontimelimit", {"need.time": "30min"}),
        (["--nodes=9"], "PartitionNodeLimit", "waits-partitionnodelimit", {"need.nodes": 4}),
        (["--nodes=1", "--ntasks=64"], "PartitionConfig", "waits-partitionconfig", None),
        (["--begin=now+1hour"], "BeginTime", "waits-begintime", None),
        (["--qos=tiny", "--time=20"], "QOSMaxWall", "waits-qosmaxwalldurationperjoblimit", {"need.time": "10min"}),
        (["--qos=tiny", "--time=5", "--gres=gpu:3"], "QOSMaxGRES", "waits-qosmaxgresperuser", None),
    ],
)
def test_a_job_that_waits_is_explained(cluster, run, options, code, rule, change):
    job = submit(run, *options)
    until(job, reason(code))
    advice = advised(run)
    assert advice.where == "waiting"
    assert advice.findings[0].rule == rule, advice
    assert (advice.findings[0].evidence or {}).get("change") == change
    assert advice.facts["scheduler"]["job"] == job
    assert advice.facts["unknown"] == []


def test_a_dependency_that_failed_is_never_satisfied(cluster, run):
    before = run_command(["sbatch", "--parsable", "--output=/dev/null", "--wrap", "exit 1"]).strip()
    until(before, ended)
    until(submit(run, f"--dependency=afterok:{before}"), reason("DependencyNeverSatisfied"))
    finding = advised(run).findings[0]
    assert (finding.severity, finding.given) == ("error", f"afterok:{before}(failed)")


def test_a_second_job_over_a_limit_of_jobs_waits_for_the_first(cluster, run):
    first = run_command(["sbatch", "--parsable", "--qos=tiny", "--time=5", "--output=/dev/null", "--wrap", "sleep 300"])
    until(first.strip(), lambda record: record.get("JobState") == "RUNNING")
    until(submit(run, "--qos=tiny", "--time=5"), reason("QOSMaxJobsPerUser"))
    finding = advised(run).findings[0]
    assert (finding.severity, finding.allowed) == ("info", "MaxJobsPU = 1")
    assert finding.given == "your jobs: 1 pending, 1 running"


def test_an_account_that_was_taken_away_is_told_with_those_that_are_left(cluster, run):
    cluster.command("sacctmgr", "--immediate", "add", "account", "closing")
    user = getpass.getuser()
    cluster.command("sacctmgr", "--immediate", "add", "user", user, "account=closing")
    job = submit(run, "--account=closing", "--hold")
    cluster.command("sacctmgr", "--immediate", "delete", "user", user, "account=closing")
    cluster.command("scontrol", "release", job)
    until(job, reason("InvalidAccount"))
    finding = advised(run).findings[0]
    assert finding.rule == "waits-invalidaccount"
    assert "research" in finding.allowed


def test_drained_nodes_are_named_with_their_reason(cluster, run):
    for node in ("n2", "n3", "n4"):
        cluster.drain(node, "replacing GPUs")
    until(submit(run, "--nodes=3"), reason("Nodes_required"))
    advice = advised(run)
    assert "n[2-4] drain: replacing GPUs" in advice.verdict
    assert [finding.rule for finding in advice.findings[1:2]] == ["too-few-nodes"]
    assert advice.findings[1].evidence["change"] == {"need.nodes": 1}


def test_a_node_that_was_named_and_is_drained_is_told(cluster, run):
    cluster.drain("n3", "replacing GPUs")
    until(submit(run, "--nodelist=n3"), reason("ReqNodeNotAvail"))
    assert "n3 drain: replacing GPUs" in advised(run).verdict


def test_a_reservation_ahead_gives_the_time_that_fits_before_it(cluster, run):
    options = [
        "starttime=now+60minutes",
        "duration=60",
        "nodes=ALL",
        "flags=maint,ignore_jobs",
        f"users={getpass.getuser()}",
    ]
    cluster.command("scontrol", "create", "reservation", "reservationname=maintenance", *options)
    try:
        until(submit(run, "--time=120"), reason("ReqNodeNotAvail"))
        finding = advised(run).findings[0]
        assert "reservation maintenance" in finding.text
        assert finding.evidence["change"]["need.time"].endswith("min")
        other = submit(run, "--time=30", "--reservation=maintenance")
        until(other, reason("Reservation"))
        assert "its reservation maintenance begins at" in advised(run).verdict
    finally:
        cluster.clear()
        cluster.command("scontrol", "delete", "reservationname=maintenance")


def test_a_full_cluster_gives_its_place_in_the_queue(cluster, run):
    full = run_command(
        ["sbatch", "--parsable", "--nodes=4", "--exclusive", "--time=60", "--output=/dev/null", "--wrap", "sleep 300"]
    )
    until(full.strip(), lambda record: record.get("JobState") == "RUNNING")
    until(submit(run, "--nodes=2", "--time=30"), lambda record: record.get("StartTime", "Unknown") != "Unknown")
    advice = advised(run)
    assert advice.findings[0].rule in ("waits-resources", "waits-priority")
    assert advice.findings[0].allowed == "0 idle of 4 usable nodes in normal"
    assert "expected-start" in [finding.rule for finding in advice.findings]


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        (["--account=nobody"], "refused-account"),
        (["--qos=nothing"], "refused-qos"),
        (["--partition=nowhere"], "refused-partition"),
        (["--mem=999G"], "refused-memory"),
        (["--constraint=h100"], "refused-constraint"),
        (["--gres=gpu:9"], "refused-configuration"),
        (["--reservation=none"], "refused-reservation"),
        (["--licenses=matlab:1"], "refused-licence"),
        (["--nodelist=n99"], "refused-node-name"),
        (["--no-such-option"], "refused-option"),
    ],
)
def test_what_sbatch_refuses_is_explained(cluster, run, options, rule):
    with pytest.raises(SlurmError) as refused:
        submit(run, *options)
    finding = explain_refusal(refused.value.said)
    assert finding is not None, refused.value.said
    assert finding.rule == rule


def test_a_full_queue_is_refused_with_the_limit_named(cluster, run):
    for _ in range(3):
        submit(run, "--qos=tiny", "--time=5", "--hold")
    with pytest.raises(SlurmError) as refused:
        submit(run, "--qos=tiny", "--time=5")
    finding = explain_refusal(refused.value.said, qos="tiny")
    assert finding is not None
    assert finding.text == "QOS tiny limits the number of jobs in the queue of each person"


def test_a_job_that_used_too_much_memory_asks_for_more(cluster, run):
    program = f"{sys.executable} -c 'x = bytearray(300 << 20); import time; time.sleep(60)'"
    job = submit(run, "--mem=50", script=program)
    until(job, ended)
    advice = advised(run)
    assert advice.verdict == "it failed because it used more memory than the 52.4 MB of a node"
    assert advice.findings[0].evidence["change"]["need.memory"].endswith("MB")


@pytest.mark.parametrize(
    ("script", "said"),
    [("exit 7", "its batch script ended with an error (code 7)"), ("kill -SEGV $$", "with an error (signal 11)")],
)
def test_a_job_that_ended_without_a_word_of_the_run_is_a_failure(cluster, run, script, said):
    until(submit(run, script=script), ended)
    advice = advised(run)
    assert advice.failed
    assert said in advice.verdict


def test_a_requeued_job_is_told_to_wait(cluster, run):
    job = submit(run)
    until(job, lambda record: record.get("JobState") == "RUNNING")
    cluster.command("scontrol", "requeue", job)
    until(job, reason("BeginTime"))
    assert "it was requeued" in advised(run).verdict


def test_a_job_that_was_cancelled_is_no_failure(cluster, run):
    job = submit(run)
    until(job, lambda record: record.get("JobState") == "RUNNING")
    cluster.command("scancel", job)
    until(job, ended)
    advice = advised(run)
    assert (advice.where, advice.failed) == ("cancelled", False)


def test_the_command_prints_the_verdict_first_and_tells_failure_by_its_code(cluster, run):
    until(submit(run, "--hold"), reason("JobHeldUser"))
    command = [sys.executable, "-m", "cordee.faces.cli", "advise", str(run.root)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, f"{run.id}: it waits because you hold it")
    cluster.clear()
    until(submit(run, script="exit 1"), ended)
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert json.loads(done.stdout)["state"] == "failed"
    assert "advise" in COMMANDS


def test_a_controller_that_is_down_is_said_and_is_no_failure(cluster, run, monkeypatch):
    submit(run, "--hold")
    monkeypatch.setenv("SLURM_CONF", cluster.impatient()["SLURM_CONF"])
    cluster.stop_controller()
    try:
        advice = advised(run)
    finally:
        cluster.start_controller()
    assert not advice.failed
    assert advice.findings[0].rule == "scheduler-unknown"
    assert any("squeue" in text for text in advice.facts["unknown"])


def submitted(job: Path, tmp_path: Path, script: str, toml: str) -> RunFolder:
    """Return a run that was handed to Slurm as `cordee run` does; a refusal is in its journal."""
    job.mkdir()
    (job / "train.py").write_text(script)
    (job / "cordee.toml").write_text(f'name = "t"\nrun = "python train.py"\n{toml}')
    folder = made(job, tmp_path)
    with contextlib.suppress(SubmitError):
        submitter("slurm").submit(folder, plan_of(folder))
    return folder


def test_a_run_of_ours_that_slurm_refused_failed_for_that_reason(cluster, tmp_path):
    folder = submitted(tmp_path / "refused", tmp_path, "", '[need]\naccount = "nobody"\n')
    advice = advised(folder)
    assert advice.failed
    assert advice.findings[0].rule == "refused-account"


def test_a_run_of_ours_that_is_held_waits(cluster, tmp_path):
    folder = submitted(tmp_path / "held", tmp_path, "", '[need]\ntime = "5min"\n[slurm]\noptions = ["--hold"]\n')
    assert advised(folder).verdict == "it waits because you hold it"


def test_a_run_of_ours_that_failed_on_its_nodes_is_explained_by_its_ranks(cluster, tmp_path):
    toml = '[need]\ntime = "5min"\n[vet]\nmin_memory = "1MB"\nmin_disk = "1MB"\n[restart]\nretries = 0\n'
    folder = submitted(tmp_path / "failing", tmp_path, "raise OSError(122, 'Disk quota exceeded')\n", toml)
    deadline = time.monotonic() + 2 * _WAIT_S
    while not replay(read_journal(folder.journal)).ended and time.monotonic() < deadline:
        time.sleep(0.2)
    advice = advised(folder)
    assert advice.verdict == "it failed because your disk quota is used up"


def running(record: dict[str, str]) -> bool:
    return record.get("JobState") == "RUNNING"


def test_a_node_that_failed_is_named(cluster, run):
    job = submit(run, "--no-requeue")
    until(job, running)
    node = (job_record(job) or {})["NodeList"]
    cluster.command("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=power supply")
    until(job, ended)
    assert advised(run).verdict == f"it failed because a node failed under it ({node})"


def test_a_job_that_was_preempted_for_good_says_so(cluster, run):
    job = submit(run, "--no-requeue", "--nodes=4", "--exclusive")
    until(job, running)
    options = ["--partition=debug", "--nodes=4", "--exclusive", "--time=5", "--output=/dev/null"]
    run_command(["sbatch", *options, "--wrap", "sleep 60"])
    until(job, ended)
    assert advised(run).verdict == "it failed because a job with a higher priority took its nodes"


@pytest.mark.campaign
def test_a_job_whose_time_was_up_asks_for_more(cluster, run):
    job = submit(run, "--time=10")
    until(job, running)
    cluster.command("scontrol", "update", f"JobId={job}", "EndTime=now+2")
    until(job, ended)
    finding = advised(run).findings[0]
    assert finding.rule == "time"
    assert '[need] time = "' in finding.next


def test_a_failing_prolog_is_told_while_the_job_waits(cluster, run):
    cluster.set_prolog("exit 1")
    job = submit(run)
    until(job, lambda record: record.get("Restarts") not in (None, "0"))
    rules = [finding.rule for finding in advised(run).findings]
    cluster.set_prolog(None)
    assert rules[0].startswith("waits-")
    assert "prolog" in rules
