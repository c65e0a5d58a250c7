"""Which process serves a node of a Slurm job, and who has a job run again."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import time
from datetime import datetime
from functools import lru_cache

import pytest

from cordee.backends.slurm.node import rescue
from cordee.backends.slurm.node.commands import SlurmError
from cordee.backends.slurm.node.job import JobStart
from cordee.backends.slurm.node.rescue import SlurmRescue, claim_node
from cordee.control.identity import agent_file, identity, read_record
from cordee.control.supervisor.ownership import Ownership
from cordee.machine.processes import tree as processes
from cordee.runs.folder import RunFolder, write_atomically
from cordee.runs.journal import JournalWriter
from cordee.runs.plan import Checkpoints, RunPlan, RunSampling, RunSegment, RunStep, RunTasks, RunTimeouts

HERE = JobStart("7", 0, "n1")
STEP = RunStep(RunTasks(("true",), {}), Checkpoints("/run/checkpoints"), segment=RunSegment("requeue"))
PLAN = RunPlan("r", "slurm", "/", "/", "/run", (STEP,), RunTimeouts(60.0, 1.0, 10.0, 60.0, 2.0, 6.0), RunSampling(1.0))


@pytest.fixture
def folder(tmp_path) -> RunFolder:
    return RunFolder.create(tmp_path, "t-20261121T000000Z-aaaa")


@pytest.fixture
def other(folder):
    """An agent that lives: a process and its record."""
    process = subprocess.Popen(["sleep", "600"])
    seen = processes.read_process(process.pid)

    def record(incarnation: int, here: JobStart = HERE) -> subprocess.Popen[bytes]:
        mine = {**identity(), "pid": process.pid, "start_ticks": seen.start_ticks}
        write_atomically(
            agent_file(folder, here.node), json.dumps({**mine, **here.document(), "incarnation": incarnation})
        )
        return process

    yield record
    process.kill()
    process.wait()


def test_the_first_agent_of_a_node_takes_it(folder):
    assert claim_node(folder, HERE, 0) == 1
    assert read_record(agent_file(folder, "n1"))["job"] == "7"


def test_a_node_that_is_served_is_left_alone(folder, other):
    process = other(3)
    assert claim_node(folder, HERE, 0) is None
    assert claim_node(folder, HERE, 2) is None
    assert process.poll() is None


def test_an_agent_that_is_to_be_replaced_is_killed(folder, other):
    process = other(3)
    assert claim_node(folder, HERE, 3) == 4
    assert process.wait(10) == -9


def test_what_an_earlier_start_of_the_job_left_is_killed(folder, other):
    process = other(3)
    assert claim_node(folder, JobStart("7", 1, "n1"), 0) == 4
    assert process.wait(10) == -9


def led() -> bool:
    return True


def unled() -> bool:
    return False


class Fated(JobStart):
    """An allocation whose fate is known."""

    asked: list[str] = []
    word = "running"

    def fate(self) -> str:
        return self.word

    def look(self, script_node: str = "") -> tuple[str, bool]:
        return self.fate(), True

    def go_on(self, folder, how, fate="unknown"):
        self.asked.append(how)
        return {"how": how, "job": self.job}


@pytest.mark.parametrize(
    ("act", "word", "asked"),
    [
        ("terminated", "killed", ["requeue"]),
        ("terminated", "cancelled", []),
        ("terminated", "requeued", []),
        ("terminated", "ended", []),
        ("orphaned", "running", ["requeue"]),
        ("orphaned", "node_lost", ["requeue"]),
        ("orphaned", "requeued", []),
        ("orphaned", "cancelled", []),
    ],
)
def test_a_run_is_brought_back_only_when_nobody_else_does(folder, monkeypatch, act, word, asked):
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[1-2]")
    here = Fated("7", 0, "n1")
    monkeypatch.setattr(Fated, "word", word)
    monkeypatch.setattr(Fated, "asked", [])
    lost = SlurmRescue(folder, PLAN, here)
    asyncio.run(lost.orphaned() if act == "orphaned" else lost.terminated(led))
    assert here.asked == asked


def test_a_controller_that_does_not_answer_is_asked_again(folder, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[1-2]")
    monkeypatch.setattr(rescue, "_LOOK_S", 0.01)
    monkeypatch.setattr(rescue, "_UNANSWERED_S", 0.01)
    monkeypatch.setattr(Fated, "asked", [])
    answers = iter(["unknown", "unknown", "running"])
    monkeypatch.setattr(Fated, "fate", lambda self: next(answers))
    here = Fated("7", 0, "n1")
    asyncio.run(SlurmRescue(folder, PLAN, here).orphaned())
    assert here.asked == ["requeue"]


def test_a_run_that_has_ended_stays_ended(folder, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[1-2]")
    JournalWriter(folder.journal, "supervisor-1", 1).append("ended", state="failed", exit_code=1)
    here = Fated("7", 0, "n1")
    monkeypatch.setattr(Fated, "word", "killed")
    monkeypatch.setattr(Fated, "asked", [])
    asyncio.run(SlurmRescue(folder, PLAN, here).terminated(led))
    assert here.asked == []


def hurried(monkeypatch, faster: float = 100.0) -> None:
    """Let time pass faster."""
    for name in ("_FATE_S", "_POLL_S", "_AGAIN_S", "_UNHEARD_S", "_UNHEARD_MOST_S", "_KILLED_S", "_EACH_LATER_S"):
        monkeypatch.setattr(rescue, name, getattr(rescue, name) / faster)
    for name in ("_LOOK_S", "_UNANSWERED_S", "_BRINGS_BACK_S", "_ORPHAN_S", "_NOTICE_S"):
        monkeypatch.setattr(rescue, name, getattr(rescue, name) / faster)


def says(monkeypatch, *words: str) -> None:
    """Have the controller say these, one after the other, and the last one from then on."""
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[0-9]")
    monkeypatch.setattr(Fated, "asked", [])
    left = [*words]
    monkeypatch.setattr(Fated, "fate", lambda self: left.pop(0) if len(left) > 1 else left[0])


@pytest.mark.parametrize("word", ["running", "unknown"])
def test_an_agent_that_is_told_to_end_asks_until_the_controller_knows_why(folder, monkeypatch, word):
    hurried(monkeypatch)
    says(monkeypatch, *[word] * 9, "killed")  # for longer than a minute, or a busy controller's answers
    asyncio.run(SlurmRescue(folder, PLAN, Fated("7", 0, "n1")).terminated(unled))
    assert Fated.asked == ["requeue"]


def test_a_job_that_runs_on_with_its_supervisor_loses_an_agent_that_is_told_to_end(folder, monkeypatch):
    hurried(monkeypatch)
    says(monkeypatch, "running")
    asyncio.run(SlurmRescue(folder, PLAN, Fated("7", 0, "n1")).terminated(led))
    assert Fated.asked == []


def test_an_agent_far_down_brings_the_run_back_when_those_before_it_are_gone(folder, monkeypatch):
    hurried(monkeypatch)
    says(monkeypatch, "killed")
    asyncio.run(SlurmRescue(folder, PLAN, Fated("7", 0, "n8")).terminated(unled))
    assert Fated.asked == ["requeue"]


def test_of_many_agents_that_are_told_to_end_few_ask_and_one_brings_the_run_back(folder, monkeypatch):
    hurried(monkeypatch, 10.0)
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[0-99]")
    monkeypatch.setattr(rescue, "expand_nodes", lru_cache(rescue.expand_nodes))
    asked, brought = [], []

    class Counted(JobStart):
        def fate(self) -> str:
            asked.append(self.node)
            return "running" if len(asked) < 4 else "killed"

        def go_on(self, folder, how, fate="unknown"):
            brought.append(self.node)
            return {"how": how, "job": self.job}

    async def wait() -> None:
        await asyncio.gather(
            *(SlurmRescue(folder, PLAN, Counted("7", 0, f"n{i}")).terminated(unled) for i in range(100))
        )

    asyncio.run(wait())
    assert 1 <= len(brought) <= 3  # those who ask at the same moment: a second requeue finds the first one done
    assert len(asked) <= 8


def test_what_slurm_refuses_once_is_tried_again(folder, monkeypatch):
    hurried(monkeypatch)
    says(monkeypatch, "running")
    tries = []

    def go_on(self, folder, how, fate="unknown"):
        tries.append(how)
        if len(tries) < 3:
            raise SlurmError(["sbatch"], "Munge encode failed")
        return {"how": how, "job": self.job}

    monkeypatch.setattr(Fated, "go_on", go_on)
    asyncio.run(SlurmRescue(folder, PLAN, Fated("7", 0, "n1")).orphaned())
    says(monkeypatch, "killed")
    asyncio.run(SlurmRescue(folder, PLAN, Fated("8", 0, "n1")).terminated(unled))
    assert len(tries) == 4


def test_a_job_whose_next_one_waits_for_it_is_cancelled_until_it_ends(folder, monkeypatch):
    hurried(monkeypatch)
    says(monkeypatch, "running")
    monkeypatch.setattr(Fated, "go_on", lambda self, folder, how, fate: {"how": "resubmit", "job": "8"})
    cancelled = []

    def cancel(self) -> None:
        cancelled.append(self.job)
        if len(cancelled) < 2:
            raise SlurmError(["scancel"], "Munge encode failed")

    monkeypatch.setattr(Fated, "cancel", cancel)
    asyncio.run(SlurmRescue(folder, PLAN, Fated("7", 0, "n1")).orphaned())
    assert cancelled == ["7", "7"]


@pytest.mark.parametrize(
    ("words", "ends"), [(["unknown", "killed"], True), (["running"], False), (["preempted"], False)]
)
def test_an_agent_that_was_told_to_end_before_it_could_hear_it_asks(folder, monkeypatch, words, ends):
    hurried(monkeypatch)
    says(monkeypatch, *words)
    assert asyncio.run(SlurmRescue(folder, PLAN, Fated("7", 0, "n1")).unheard(unled)) is ends


def test_an_agent_that_finds_its_supervisor_asks_nobody(folder, monkeypatch):
    hurried(monkeypatch)
    says(monkeypatch, "killed")
    assert asyncio.run(SlurmRescue(folder, PLAN, Fated("7", 0, "n1")).unheard(led)) is False


def test_after_a_look_without_an_answer_the_next_one_comes_sooner(folder, monkeypatch):
    hurried(monkeypatch)
    says(monkeypatch, "unknown", "running")
    monkeypatch.setattr(rescue, "_LOOK_S", 600.0)
    asyncio.run(asyncio.wait_for(SlurmRescue(folder, PLAN, Fated("7", 0, "n1")).orphaned(), 60))
    assert Fated.asked == ["requeue"]


def test_what_was_asked_of_the_job_alone_says_nothing_of_the_batch_scripts_node(folder, monkeypatch):
    hurried(monkeypatch)
    says(monkeypatch, "running")

    async def both() -> None:
        told = asyncio.ensure_future(SlurmRescue(folder, PLAN, Fated("7", 0, "n0")).terminated(unled))
        await asyncio.sleep(0.5)
        await SlurmRescue(folder, PLAN, Fated("7", 0, "n1")).orphaned()
        told.cancel()

    asyncio.run(asyncio.wait_for(both(), 60))
    assert Fated.asked == ["requeue"]


SCONTROL = """#!/bin/bash
case "$*" in
  *job*) echo "JobId=7 JobState=RUNNING Reason=None Restarts=0 PreemptTime=None ExitCode=0:0 $JOB";;
  *node*) echo "NodeName=n0 $NODE";;
esac
"""


@pytest.fixture
def scontrol(tmp_path, monkeypatch):
    """Play scontrol, which says this of the job and of the node."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "scontrol").write_text(SCONTROL)
    (tmp_path / "bin" / "scontrol").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")

    def says(job: str, node: str) -> None:
        monkeypatch.setenv("JOB", job)
        monkeypatch.setenv("NODE", node)

    return says


def test_a_controller_that_has_said_that_the_script_was_killed_is_not_asked_again(scontrol, folder, tmp_path):
    """A busy controller takes seconds for each question, and agents that are told to end have few of them."""
    played = tmp_path / "bin" / "scontrol"
    played.write_text(played.read_text().replace("case", f'echo "$1" >>{tmp_path}/asked\ncase', 1))
    scontrol("", "")
    HERE.go_on(folder, "requeue", "killed")
    HERE.go_on(folder, "requeue")
    assert (tmp_path / "asked").read_text().split() == ["requeue", "show", "requeue"]


BEGAN = datetime(2026, 11, 21, 12, 0, 0).timestamp()


@pytest.mark.parametrize(
    ("job", "node", "lost"),
    [
        ("BatchHost=n0 NodeList=n[0-2]", "State=ALLOCATED BootTime=2026-11-20T10:00:00", False),
        ("BatchHost=n0 NodeList=n[0-2]", "State=ALLOCATED BootTime=Unknown", False),
        ("BatchHost=n0 NodeList=n[0-2]", "State=DOWN*+NOT_RESPONDING BootTime=2026-11-20T10:00:00", True),
        ("BatchHost=n0 NodeList=n[1-2]", "State=IDLE BootTime=2026-11-20T10:00:00", True),
        ("BatchHost=n0 NodeList=n[0-2]", "State=ALLOCATED BootTime=2026-11-21T12:03:00", True),
    ],
    ids=["there", "there, and no boot time", "down", "was down for a moment", "has booted since"],
)
def test_a_batch_host_that_is_or_was_lost_is_seen(scontrol, job, node, lost):
    scontrol(job, node)
    assert JobStart("7", 0, "n1", BEGAN).look() == ("running", lost)


@pytest.mark.parametrize(("requeues", "lost"), [(0, True), (1, False)], ids=["of this start", "of the start before it"])
def test_the_node_that_the_supervisor_was_on_is_asked_for_though_slurm_names_another(scontrol, folder, requeues, lost):
    """A controller that comes back takes the lowest node that is left for the batch script's."""
    scontrol("BatchHost=n1 NodeList=n[1-2]", "State=ALLOCATED BootTime=2026-11-20T10:00:00")
    Ownership(folder.control / "epochs", who=lambda: {"node": "n0", "job": "7", "requeues": 0}).claim()
    here = JobStart("7", requeues, "n1", BEGAN)
    assert SlurmRescue(folder, PLAN, here)._look() == ("running", lost)


def test_one_of_many_agents_brings_the_run_back_and_the_others_leave_it_to_it(folder, monkeypatch):
    monkeypatch.setattr(rescue, "_EACH_LATER_S", 1.0)
    monkeypatch.setattr(rescue, "_NOTICE_S", 0.3)
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[0-19]")
    brought: list[str] = []

    class Slow(JobStart):
        def look(self, script_node: str = "") -> tuple[str, bool]:
            return "running", False

        def go_on(self, folder, how, fate="unknown"):
            brought.append(self.node)
            time.sleep(0.2)
            return {"how": how, "job": self.job}

    async def wait() -> None:
        agents = [
            asyncio.ensure_future(SlurmRescue(folder, PLAN, Slow("7", 0, f"n{i}")).orphaned()) for i in range(4, 20)
        ]
        await asyncio.wait(agents, timeout=7.0)
        for agent in agents:
            agent.cancel()

    asyncio.run(wait())
    assert brought == ["n4"]
