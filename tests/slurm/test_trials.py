"""Sweeps and farms on a real Slurm: over several nodes and several jobs, killed, interrupted by time limits."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.systems.trials.test_trials_of_several_nodes import SCRIPT as MEETING
from tests.systems.trials.test_trials_that_share_a_node import four_trials, read_the_source_once

from cordee.control.identity import living_record
from cordee.control.supervisor.ownership import Ownership
from cordee.faces.report import render
from cordee.job.submit import plan_of, submitter_of
from cordee.job.submit.prepare import create_run, prepare
from cordee.job.terminal.run_args import state_of
from cordee.runs.folder import RunFolder
from cordee.runs.journal import read_journal
from cordee.systems.trials.sampler import OptunaStudy
from cordee.systems.trials.shown import Farm
from cordee.systems.trials.sweeps import Sweep
from cordee.testing.patience import wait_until
from cordee.testing.slurm import DisposableSlurm
from support.runs.real_run import SlurmRun

pytestmark = pytest.mark.campaign
_SCRIPT = "import sys, time, cordee\nx, opt = float(sys.argv[1]), sys.argv[2]\ntime.sleep(0.5)\ncordee.log(loss=(x - 0.25) ** 2 + (opt == 'sgd') / 50)\n"
_SPACE = 'x = "0.0..1.0"\nopt = ["adam", "sgd"]\nwidth = [1, 2]\ngoal = "min loss"\nsampler = "tpe"\n'
_RUN = "python train.py {x} {opt} {width}"


def ends_of(root: Path) -> list[list[object]]:
    """Return the rows of all ends in a run's journal of tasks."""
    journal = root / "tasks/journal"
    return [
        row
        for event in (read_journal(journal) if journal.is_dir() else [])
        if event["event"] == "tasks_ended"
        for row in event["ended"]
    ]


def killed_twice(run: SlurmRun) -> None:
    """Kill an agent after some ends, and the supervisor after more."""
    wait_until(lambda: len(ends_of(run.folder.root)) >= 6)
    run.kill(f"agent {run.state.nodes[0].node}")
    before = len(ends_of(run.folder.root))
    wait_until(lambda: len(ends_of(run.folder.root)) >= before + 6)
    run.kill("supervisor")


def ignorant_choice(part: RunFolder) -> dict[str, str]:
    """Return what the sampler of a job would choose first if it knew of no other trials."""
    plan = plan_of(part)["steps"][0]["systems"]["trials"]
    return OptunaStudy({**plan["sampling"], "goals": plan["goals"], "trials": []}).ask(0)


@pytest.fixture
def short(slurm: DisposableSlurm) -> Iterator[str]:
    """A partition whose jobs end after two minutes."""
    slurm.command("scontrol", "update", "PartitionName=debug", "MaxTime=2")
    yield "debug"
    slurm.command("scontrol", "update", "PartitionName=debug", "MaxTime=30")


@pytest.mark.gate
def test_ranks_of_a_trial_meet_over_two_nodes_and_each_trial_ends_once_when_an_agent_is_killed(job, start):
    sweep = '[sweep]\nnumber_ = "0..5"\ngoal = "min loss"\nnodes = 2\nranks = 2\n'
    run = start(job("python train.py {number_}", f"[need]\nnodes = 4\n{sweep}", MEETING))
    wait_until(lambda: ends_of(run.folder.root))
    run.kill(f"agent {run.state.nodes[1].node}")
    assert run.wait_end(240).text == "1 of 6 trials failed; best: loss = 0.4, trial 0: number_=0"
    trials = {trial["id"]: trial for trial in Sweep(run.folder).trials}
    values = {number: trial["value"] for number, trial in trials.items()}
    assert values == {number: None if number == 3 else pytest.approx(number + 0.4) for number in range(6)}
    assert trials[3]["code"] == 7
    assert sorted(row[0] for row in ends_of(run.folder.root) if row[2] in ("done", "failed")) == list(range(6))
    places = {tuple(line.split()) for number in range(6) for line in run.output(rank=number).decode().splitlines()}
    assert len({node for node, _ in places}) == 4
    once = next(number for number, trial in trials.items() if (trial["state"], trial["tries"]) == ("done", 1))
    ranks = [line.split()[1] for line in run.output(rank=once).decode().splitlines()]
    assert sorted(ranks) == ["0", "0", "1", "1"]
    assert run.processes() == []


def test_a_sweep_of_64_trials_survives_kills_and_the_end_of_its_job_and_tells_what_mattered(job, start, slurm):
    chain = "[need]\nnodes = 1\ntime = '2h'\npartition = 'debug'\n"
    run = start(job(_RUN, f"{chain}[sweep]\n{_SPACE}trials = 64\n", _SCRIPT), reported=True)
    killed_twice(run)
    before = len(ends_of(run.folder.root))
    wait_until(lambda: len(ends_of(run.folder.root)) >= before + 6)
    slurm.command("scancel", "--signal=USR1", "--batch", run.job)  # as where its time limit is near
    state = run.wait_end(400)
    assert (state.state, state.segments) == ("finished", 2), state.text
    sweep = Sweep(run.folder)
    assert [(trial["id"], trial["state"]) for trial in sweep.trials] == [(number, "done") for number in range(64)]
    done = [row[0] for row in ends_of(run.folder.root) if row[2] == "done"]
    assert sorted(done) == list(range(64))
    assert max(trial["tries"] for trial in sweep.trials) >= 2
    shares = sweep.document()["importance"]
    assert shares["x"] > max(shares["opt"], shares["width"])
    render(run.folder.root)
    assert "x explains" in (run.folder.report / "index.html").read_text()
    assert "64 trials done; best: loss = " in str(state.text)


def test_samplers_of_jobs_that_begin_one_after_the_other_learn_from_those_before_though_parts_of_them_are_killed(
    job, slurm, tmp_path
):
    for name in slurm.node_names[1:]:
        slurm.drain(name, "one job at a time")
    folder = job(_RUN, f"[need]\nnodes = 1\n[sweep]\n{_SPACE}trials = 24\njobs = 3\n", _SCRIPT)
    quick = {"vet.max_load": 1000.0, "timeouts.lost": 5.0, "timeouts.orphan": 10.0}
    run = create_run(prepare(str(folder), "slurm", quick, tmp_path / "runs"))
    submitter_of(run).submit(run, plan_of(run))
    parts = [RunFolder(part) for part in sorted((run.root / "children").iterdir())]
    for part in parts[:2]:
        wait_until(lambda part=part: len(ends_of(part.root)) >= 2, 240)
        epochs = part.control / "epochs"
        agent = living_record(part.control / f"agent-{slurm.node_names[0]}.json")
        supervisor = living_record(epochs / str(Ownership(epochs).newest()) / "owner.json")
        os.kill((supervisor if part == parts[0] else agent)["pid"], signal.SIGKILL)
    wait_until(lambda: state_of(run).ended, 400)
    assert state_of(run).state == "finished", state_of(run).text
    trials = Sweep(run).trials
    assert [(trial["id"], trial["state"]) for trial in trials] == [(number, "done") for number in range(24)]
    assert [[task.id for task in Farm(part.root).tasks] for part in parts] == [
        list(range(at, 24, 3)) for at in range(3)
    ]
    done = [row[0] for part in parts for row in ends_of(part.root) if row[2] == "done"]
    assert sorted(done) == list(range(24))
    first, last = (ignorant_choice(part) for part in (parts[0], parts[2]))
    assert trials[0]["parameters"] == first
    assert trials[2]["parameters"] != last


def test_a_farm_of_10000_lines_that_its_time_limit_interrupts_goes_on_in_the_next_job(job, start, short):
    folder = job(
        "sh -c {line}",
        f"[need]\nnodes = 2\ntime = '30min'\npartition = '{short}'\n[farm]\nfile = 'tasks.txt'\n[checkpoint]\ngrace = '10s'\n",
    )
    (folder / "cordee.toml").write_text(
        (folder / "cordee.toml").read_text().replace("'sh -c {line}'", '["sh", "-c", "{line}"]')
    )
    (folder / "tasks.txt").write_text("sleep 0.05\n" * 10_000)
    run = start(folder)
    state = run.wait_end(850)
    assert (state.state, state.segments > 1) == ("finished", True), state.text
    reasons = [segment.reason for segment in state.segment_states]
    assert reasons == ["time_limit"] * (state.segments - 1) + ["finished"]
    ends = [row for row in ends_of(run.folder.root) if row[2] == "done"]
    assert sorted(row[0] for row in ends) == list(range(10_000))
    assert Farm(run.folder.root).document("")["done"] == 10_000


def test_four_trials_with_a_gpu_each_on_a_node_of_slurm_read_the_source_once(slurm, tmp_path, monkeypatch):
    with four_trials(tmp_path, SlurmRun, monkeypatch, "[need]\nnodes = 1\ngpus_per_node = 4\n") as run:
        assert not read_the_source_once(run).startswith(str(tmp_path))
        assert run.job.isdigit()
