"""What Slurm says of a run, read from recorded output: versions 22.05 and 23.11, sites without sacct, a busy controller."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import pytest

from cordee.backends.slurm.facts import collect_facts
from cordee.backends.slurm.values import gpus, moment, seconds, size_bytes
from cordee.job.submit.prepare import create_run, prepare
from cordee.runs.folder import RunFolder
from cordee.runs.journal import client_journal, read_journal
from cordee.runs.state import replay
from cordee.systems.advise.advice import advise
from cordee.systems.advise.collect import collect_situation

QUEUE_22 = "12|PENDING|Priority|{comment}\n11|RUNNING|None|(null)\n9|COMPLETED|None|cordee:another\n"
JOB_22 = (
    "JobId=12 JobName=t UserId=me(1000) GroupId=me(1000) MCS_label=N/A Priority=1 Nice=0 Account=a1 QOS=tiny JobState=PENDING "
    "Reason=Priority Dependency=(null) Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=0:0 RunTime=00:00:00 TimeLimit=02:00:00 "
    "TimeMin=N/A SubmitTime=2026-11-21T07:41:32 EligibleTime=2026-11-21T07:41:32 AccrueTime=2026-11-21T07:41:32 "
    "StartTime=2026-11-21T09:41:32 EndTime=Unknown Deadline=N/A SuspendTime=None LastSchedEval=2026-11-21T07:41:34 "
    "Scheduler=Backfill:* Partition=normal AllocNode:Sid=localhost:311 ReqNodeList=(null) ExcNodeList=(null) NodeList= "
    "NumNodes=2-2 NumCPUs=16 NumTasks=2 CPUs/Task=8 ReqB:S:C:T=0:0:*:* TRES=cpu=16,mem=8G,node=2,billing=16,gres/gpu=8 "
    "MinCPUsNode=8 MinMemoryNode=4G MinTmpDiskNode=0 Features=a100&ib DelayBoot=00:00:00 Command=(null) WorkDir=/tmp "
    "Comment={comment} StdErr=/tmp/x Power= TresPerNode=gres:gpu:4"
)
JOB_23 = (
    "JobId=12 JobName=t UserId=me(1000) GroupId=me(1000) MCS_label=N/A Priority=27450 Nice=0 Account=a1 QOS=tiny JobState=PENDING "
    "Reason=ReqNodeNotAvail,_UnavailableNodes:n[3-4] Dependency=(null) Requeue=1 Restarts=2 BatchFlag=1 Reboot=0 ExitCode=0:0 "
    "RunTime=00:00:00 TimeLimit=1-00:00:00 TimeMin=N/A SubmitTime=2026-11-21T07:41:32 EligibleTime=2026-11-21T07:43:32 "
    "AccrueTime=2026-11-21T07:41:32 StartTime=Unknown EndTime=Unknown Deadline=N/A SuspendTime=None SecsPreSuspend=0 "
    "LastSchedEval=2026-11-21T07:41:34 Scheduler=Main Partition=normal AllocNode:Sid=localhost:311 ReqNodeList=(null) "
    "ExcNodeList=(null) NodeList= NumNodes=2-2 NumCPUs=16 NumTasks=2 CPUs/Task=8 ReqB:S:C:T=0:0:*:* "
    "ReqTRES=cpu=16,mem=8G,node=2,billing=16,gres/gpu=8 AllocTRES=(null) Socks/Node=* NtasksPerN:B:S:C=0:0:*:* CoreSpec=* "
    "MinCPUsNode=8 MinMemoryNode=4G MinTmpDiskNode=0 Features=(null) DelayBoot=00:00:00 OverSubscribe=OK Contiguous=0 "
    "Licenses=(null) Network=(null) Command=(null) SubmitLine=sbatch --comment={comment} x WorkDir=/tmp Comment={comment} "
    "TresPerNode=gres/gpu:a100:4 TresPerTask=cpu=8"
)
PARTITIONS = (
    "PartitionName=normal AllowGroups=ALL Default=YES MaxNodes=UNLIMITED MaxTime=1-00:00:00 State=UP TotalNodes=4\n"
    "PartitionName=debug AllowGroups=ALL Default=NO MaxNodes=2 MaxTime=00:30:00 State=UP TotalNodes=4\n"
)
NODES = (
    "normal|idle|2|8|16000|gpu:a100:4(S:0-3)|a100,ib|n[1-2]|none\n"
    "normal|drain*|2|8+|16000+|gpu:a100:4,nic:1|a100,ib|n[3-4]|Kill task failed|yes\n"
    "debug|idle|2|8|16000|(null)|(null)|n[1-2]|none\n"
)
SACCT_OOM = (
    "12|OUT_OF_MEMORY|0:125|0:0||8G|120|1800|2|normal|a1|tiny|2026-11-21T07:41:32|None|n[1-2]\n"
    "12.batch|OUT_OF_MEMORY|0:125|||||1800|1||a1||2026-11-21T07:41:40||n1\n"
    "12.0|CANCELLED by 1000|0:9||3900000K|||1800|2||a1||2026-11-21T07:41:41||n[1-2]\n"
)
FORGOTTEN = "slurm_load_jobs error: Invalid job id specified"
BUSY = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)"


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """A run that is meant for Slurm."""
    job = tmp_path / "job"
    job.mkdir()
    (job / "train.py").write_text("")
    (job / "cordee.toml").write_text('name = "t"\nrun = "python train.py"\n')
    folder = create_run(prepare(str(job), "local", {}, tmp_path / "runs"))
    plan = json.loads(folder.plan.read_text())
    folder.plan.write_text(json.dumps({**plan, "backend": "slurm"}))
    return folder


class Commands:
    """Slurm's commands as executables that print what was recorded; those that are not given are missing."""

    def __init__(self, folder: Path, run: RunFolder) -> None:
        self.folder, self.comment = folder, f"cordee:{run.id}"
        folder.mkdir()

    def say(self, name: str, *answers: tuple[str, str], code: int = 0) -> None:
        """Let a command print the text whose pattern its arguments match; fail with the words when `code` is not 0."""
        lines = ["#!/bin/sh", f'echo "$0 $*" >> {self.folder}/asked', 'case "$*" in']
        for number, (pattern, text) in enumerate(answers):
            path = self.folder / f"{name}.{number}"
            path.write_text(text.replace("{comment}", self.comment))
            lines.append(f'*"{pattern}"*) /bin/cat {path} >&{2 if code else 1}; exit {code};;')
        lines += ["esac", "exit 1", ""]
        path = self.folder / name
        path.write_text("\n".join(lines))
        path.chmod(0o755)

    @property
    def asked(self) -> list[str]:
        """The command lines so far, without folders."""
        path = self.folder / "asked"
        return [line.rpartition("/")[2] for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture
def slurm(run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Commands:
    """No command at first; PATH leads to them alone."""
    commands = Commands(tmp_path / "bin", run)
    monkeypatch.setenv("PATH", str(commands.folder))
    return commands


def facts_of(run: RunFolder):
    return collect_facts(run, replay(read_journal(run.journal)).job)


def test_a_job_is_found_by_its_comment_and_read_in_22_05(run, slurm):
    slurm.say("squeue", ("--user", QUEUE_22))
    slurm.say("scontrol", ("show job", JOB_22), ("show partition", PARTITIONS))
    slurm.say("sinfo", ("", NODES))
    slurm.say("sprio", ("", "1000|400|100|500|0|0\n"))
    facts = facts_of(run)
    assert (facts.job, facts.state, facts.reason) == ("12", "PENDING", "Priority")
    assert (facts.partition, facts.account, facts.qos, facts.features) == ("normal", "a1", "tiny", "a100&ib")
    assert (facts.node_count, facts.cores, facts.gpus_per_node, facts.memory_bytes) == (2, 16, 4, 4 << 30)
    assert facts.starts_at == datetime(2026, 11, 21, 9, 41, 32).timestamp()
    assert facts.time_limit_s == 7200
    assert facts.own_jobs == {"PENDING": 1, "RUNNING": 1}
    assert facts.priority == {"total": 1000, "age": 400, "fairshare": 100, "size": 500, "partition": 0, "qos": 0}
    assert [partition.max_time_s for partition in facts.partitions] == [86400, 1800]
    assert facts.unknown == ()
    assert len(slurm.asked) == 5


def test_a_newer_slurm_is_read_as_well(run, slurm):
    slurm.say("squeue", ("--user", QUEUE_22.replace("Priority", "ReqNodeNotAvail, UnavailableNodes:n[3-4]")))
    slurm.say(
        "scontrol",
        ("show job", JOB_23),
        ("show partition", PARTITIONS),
        ("show reservation", "No reservations in the system\n"),
    )
    slurm.say("sinfo", ("", NODES))
    facts = facts_of(run)
    assert (facts.reason, facts.detail) == ("ReqNodeNotAvail", "UnavailableNodes:n[3-4]")
    assert (facts.tres["gres/gpu"], facts.gpus_per_node, facts.restarts) == (8, 4, 2)
    advice = advise(collect_situation(run))
    assert "n[3-4] drain*: Kill task failed|yes" in advice.verdict
    assert (facts.node_groups[1].usable, facts.node_groups[1].gpus, facts.node_groups[1].cores) == (False, 4, 8)


def test_a_job_that_the_controller_forgot_is_asked_for_in_accounting(run, slurm):
    client_journal(run.journal).append("placed", job="12")
    slurm.say("squeue", ("--user", ""))
    slurm.say("scontrol", ("show job", FORGOTTEN), code=1)
    slurm.say("sacct", ("--jobs=12", SACCT_OOM))
    facts = facts_of(run)
    assert (facts.state, facts.exit_code, facts.signal) == ("OUT_OF_MEMORY", 0, 125)
    assert facts.most_rss_bytes == 3900000 << 10
    assert facts.memory_bytes == 4 << 30
    assert facts.time_limit_s == 7200
    advice = advise(collect_situation(run))
    assert advice.failed
    assert advice.findings[0].evidence["change"] == {"need.memory": "7GB"}


def test_without_sacct_a_forgotten_job_is_over_and_how_is_unknown(run, slurm):
    client_journal(run.journal).append("placed", job="12")
    slurm.say("squeue", ("--user", ""))
    slurm.say("scontrol", ("show job", FORGOTTEN), code=1)
    facts = facts_of(run)
    assert (facts.job, facts.state) == ("12", "GONE")
    assert any("accounting: sacct: not found" in text for text in facts.unknown)
    advice = advise(collect_situation(run))
    assert advice.verdict == "it failed because it stopped without a last word: the scheduler has forgotten its job"


def test_without_any_of_slurms_commands_everything_is_unknown(run, slurm):
    facts = facts_of(run)
    assert (facts.job, facts.state) == (None, "")
    assert "your jobs: squeue: not found: Slurm's commands are not on PATH" in facts.unknown
    advice = advise(collect_situation(run))
    assert advice.findings[0].rule == "scheduler-unknown"
    assert not advice.failed


def test_a_controller_that_does_not_answer_is_asked_once(run, slurm):
    client_journal(run.journal).append("placed", job="12")
    slurm.say("squeue", ("--user", BUSY), code=1)
    slurm.say("scontrol", ("", BUSY), code=1)
    slurm.say("sinfo", ("", BUSY), code=1)
    slurm.say(
        "sacct", ("--jobs=12", SACCT_OOM.replace("OUT_OF_MEMORY", "RUNNING").replace("CANCELLED by 1000", "RUNNING"))
    )
    facts = facts_of(run)
    assert [line.split()[0] for line in slurm.asked] == ["squeue", "sacct"]
    assert facts.state == "RUNNING"
    assert sum("the controller does not answer" in text for text in facts.unknown) == 1


def test_the_newest_job_of_a_chain_is_the_one(run, slurm):
    journal = client_journal(run.journal)
    journal.append("placed", job="10")
    journal.append("continued", how="resubmit", job="11")
    slurm.say("squeue", ("--user", "10|COMPLETED|None|{comment}\n11|RUNNING|None|{comment}\n"))
    slurm.say("scontrol", ("show job --oneliner 11", JOB_22.replace("=12 ", "=11 ").replace("PENDING", "RUNNING")))
    assert (facts_of(run).job, facts_of(run).state) == ("11", "RUNNING")


def test_limits_of_a_qos_and_ones_rights_are_asked_for_only_when_they_matter(run, slurm):
    reason = "QOSMaxJobsPerUserLimit"
    slurm.say("squeue", ("--user", QUEUE_22.replace("Priority", reason)))
    slurm.say("scontrol", ("show job", JOB_22.replace("=Priority ", f"={reason} ")), ("show partition", PARTITIONS))
    slurm.say("sinfo", ("", NODES))
    slurm.say("sacctmgr", ("show assoc", "a1|normal,tiny|||||||\n"), ("show qos tiny", "00:10:00|1|3||||||||||||||\n"))
    facts = facts_of(run)
    assert facts.limits == {"MaxWall": "00:10:00", "MaxJobsPU": "1", "MaxSubmitPU": "3"}
    assert (facts.accounts, facts.qos_allowed) == (("a1",), ("normal", "tiny"))
    assert advise(collect_situation(run)).findings[0].allowed == "MaxJobsPU = 1"


def test_the_batch_scripts_last_words_count(run, slurm):
    client_journal(run.journal).append("placed", job="12")
    (run.submit / "slurm-12.out").write_text("slurmstepd: error: Detected 1 oom-kill event(s) in StepId=12.batch.\n")
    slurm.say("squeue", ("--user", ""))
    slurm.say("scontrol", ("show job", JOB_22.replace("PENDING Reason=Priority", "FAILED Reason=NonZeroExitCode")))
    advice = advise(collect_situation(run))
    assert advice.findings[0].rule == "memory"
    assert "sacct" in advice.facts["unknown"][0]


def test_the_last_words_of_an_earlier_start_of_the_job_do_not_count(run, slurm):
    client_journal(run.journal).append("placed", job="12")
    before = "slurmstepd: error: Detected 1 oom-kill event(s)\nslurmstepd-n1: error: *** JOB 12 CANCELLED DUE TO JOB REQUEUE ***\n"
    (run.submit / "slurm-12.out").write_text(f"{before}new words\n")
    assert facts_of(run).batch_output == ("new words",)


def test_fields_of_slurm_are_values():
    assert [
        gpus(text) for text in ("gpu:a100:4(S:0-3),nic:2", "gres/gpu:4", "gres:gpu:2", "gpu:1", "(null)", "gpu")
    ] == [4, 4, 2, 1, 0, 1]
    assert [seconds(text) for text in ("1-00:00:00", "00:30:00", "UNLIMITED", "INFINITE", None, "Partition_Limit")] == [
        86400,
        1800,
        None,
        None,
        None,
        None,
    ]
    assert [size_bytes(text) for text in ("16000M", "4Gn", "1.5T", "100", "", None)] == [
        16000 << 20,
        4 << 30,
        int(1.5 * (1 << 40)),
        100 << 20,
        None,
        None,
    ]
    assert moment("Unknown") is None
