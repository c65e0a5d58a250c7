"""A sweep over several jobs on a real pool: one submission, whose jobs HTCondor makes as others leave."""

from __future__ import annotations

import json

import pytest

from cordee.job.submit import plan_of, submitter
from cordee.runs.children import child_folder, read_graph
from cordee.runs.folder import RunFolder
from cordee.runs.journal import read_journal
from cordee.runs.state import RunState, replay
from cordee.testing.patience import wait_until

pytestmark = pytest.mark.usefixtures("real")
SWEEP = '[need]\nmemory = "128MB"\ndisk = "100MB"\n[sweep]\njobs = 6\ntrials = 12\nsampler = "random"\ngoal = "min loss"\nlr = "0.1..1.0"\n'
TRIAL = 'import sys, cordee\ncordee.log(step=1, loss=float(sys.argv[1]))\nprint("trial", sys.argv[1])\n'


def below(run) -> list[RunFolder]:
    graph = read_graph(run.folder)
    assert graph is not None
    return [child_folder(run.folder, child) for child in graph.children]


def state_of(folder: RunFolder) -> RunState:
    return replay(read_journal(folder.journal), folder.id)


def test_jobs_of_a_sweep_are_one_cluster_and_one_is_cancelled_before_it_was_made(job, start, htcondor, profile):
    profile.write_text(profile.read_text() + "max_idle = 2\n")
    for machine in htcondor.machine_names:
        htcondor.kill_machine(machine)
    run = start(job("python train.py {lr}", SWEEP, TRIAL))
    children = below(run)
    cluster = str(state_of(children[0]).job).partition(".")[0]
    assert [state_of(child).job for child in children] == [f"{cluster}.{number}" for number in range(6)]
    wait_until(lambda: len(htcondor.command("condor_q", cluster, "-af", "ProcId").split()) == 2, 30.0)
    plans = [plan_of(child) for child in children]
    again = submitter("htcondor").submit_together(children, plans)  # as if its answer had been lost
    assert again == {child.id: f"{cluster}.{number}" for number, child in enumerate(children)}
    assert len(htcondor.command("condor_q", "-factory", "-af", "ClusterId").split()) == 1
    assert "of its runs 6 waiting" in run.cordee("show").stdout
    assert "never placed" not in run.cordee("show").stdout
    last = run.cordee("show", "--json")
    assert json.loads(last.stdout)["state"] == "running"
    cancelled = run.cordee_of(children[5], "cancel")
    assert cancelled.returncode == 0, cancelled.stderr
    assert state_of(children[5]).state == "cancelled"
    for machine in htcondor.machine_names:
        htcondor.start_machine(machine)
    ended = run.wait_shown(lambda shown: shown["state"] in ("finished", "failed", "cancelled"), 300.0)
    assert ended["state"] == "cancelled"
    assert [state_of(child).state for child in children] == ["finished"] * 5 + ["cancelled"]
    assert state_of(children[5]).segments == 0
    wait_until(lambda: htcondor.command("condor_q", "-af", "ClusterId").strip() == "", 60.0)
    assert cluster not in htcondor.command("condor_q", "-factory", "-af", "ClusterId")


def test_a_sweep_is_cancelled_with_all_that_is_not_made(job, start, htcondor, profile):
    profile.write_text(profile.read_text() + "max_idle = 2\n")
    for machine in htcondor.machine_names:
        htcondor.kill_machine(machine)
    run = start(job("python train.py {lr}", SWEEP, TRIAL))
    cancelled = run.cordee("cancel")
    assert cancelled.returncode == 0, cancelled.stderr
    assert {state_of(child).state for child in below(run)} == {"cancelled"}
    wait_until(lambda: htcondor.command("condor_q", "-factory", "-af", "ClusterId").strip() == "", 30.0)
    wait_until(lambda: htcondor.command("condor_q", "-af", "ClusterId").strip() == "", 60.0)


def test_a_sweep_whose_jobs_were_removed_by_hand_is_cancelled(job, start, htcondor, profile):
    for machine in htcondor.machine_names:
        htcondor.kill_machine(machine)
    run = start(job("python train.py {lr}", SWEEP, TRIAL))
    htcondor.command("condor_rm", str(state_of(below(run)[0]).job).partition(".")[0])
    ended = run.wait_shown(lambda shown: shown["state"] not in ("queued", "running"), 30.0)
    assert ended["state"] == "cancelled"
    assert "via condor_rm" in ended["children"][0]["text"]
