"""What people see of a run on Slurm while it waits, between segments and after a bad end."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest

from cordee.backends.slurm.node.commands import SlurmError, job_record
from cordee.control.identity import agent_file
from cordee.machine.processes import tree as processes

CHAIN = '[need]\nnodes = 2\ntime = "2h"\n[on.slurm.need]\npartition = "debug"'
HELD = '[need]\nnodes = 1\n[slurm]\noptions = ["--hold"]'


@pytest.fixture
def cordee(tmp_path):
    """The command, in the folder of the runs that `start` makes."""

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "cordee.faces.cli", *arguments]
        return subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300)

    return call


def test_a_chain_is_seen_between_its_segments_and_after_its_end(job, start, slurm, cordee, training):
    run = start(job(training.run, CHAIN))
    node = run.wait(lambda state: state.step is not None and state.step > 20).nodes[1].node
    assert cordee("shell", "last", "--node", node, "--", "sh", "-c", "echo $SLURMD_NODENAME").stdout.split() == [node]
    record = agent_file(run.folder, node)
    known = record.read_text()
    record.write_text(json.dumps({**json.loads(known), "host": "nid000009"}))
    refused = cordee("shell", "last", "--node", node, "--", "true")
    record.write_text(known)
    assert (refused.returncode, "network_trusted = true" in refused.stderr) == (2, True)
    # The next segment begins when all has been looked at.
    for name in slurm.node_names:
        slurm.drain(name, "test")
    slurm.command("scancel", "--signal=USR1", "--batch", run.job)
    run.wait(lambda state: state.state == "queued")
    shell, shown, picture = cordee("shell"), cordee("show"), cordee("watch", "--once")
    for name in slurm.node_names:
        slurm.resume(name)
    assert shell.returncode == 2
    assert "this run has no nodes now" in shell.stderr
    assert re.search(r"its time limit was near; step-\d{6} saved", shown.stdout), shown.stdout
    assert "waits for its nodes" in shown.stdout
    assert f"job {run.job}" in picture.stdout
    training.may_end()
    state = run.wait_end()
    assert (state.state, state.segments) == ("finished", 2), state.text
    document = json.loads(cordee("show", "--json").stdout)
    first, second = document["segment_list"]
    assert (first["reason"], first["next"], first["partition"]) == ("time_limit", "requeue", "debug")
    assert (second["reason"], second["job"], len(second["nodes"])) == ("finished", run.job, 2)
    assert second["queue_s"] > 1
    assert 0 < first["train_s"] < first["held_s"]
    assert "waiting between segments" in cordee("report").stdout


def test_time_after_a_lost_batch_script_is_no_training(job, start, slurm, training):
    run = start(job(training.run, "[need]\nnodes = 1"))
    run.wait(lambda state: state.step is not None and state.step > 20)
    # Nobody is left who could write the end: while the script stands still it cannot start another supervisor.
    script = run.pid("script")
    os.kill(script, signal.SIGSTOP)
    run.kill("supervisor")
    os.kill(script, signal.SIGKILL)
    try:
        slurm.command("scontrol", "requeuehold", run.job)
    except SlurmError:  # the agent was faster: it has been requeued
        slurm.command("scontrol", "hold", run.job)
    patience = time.monotonic() + 60
    while (job_record(run.job)["JobState"], run.processes()) != ("PENDING", []):
        assert time.monotonic() < patience, (job_record(run.job), run.processes())
        processes.sweep(f"{run.folder.id}/")
        time.sleep(0.1)
    gone_at = time.time()
    time.sleep(1.5)
    slurm.command("scontrol", "release", run.job)
    training.may_end()
    state = run.wait_end()
    assert (state.state, state.segments) == ("finished", 2), state.text
    first, second = state.segment_states
    assert first.reason == "lost"
    assert first.ended_at < gone_at < gone_at + 1.5 < second.started_at
    queued = [phase for phase in state.phases if phase.name == "queue" and phase.segment == 2]
    assert [(phase.start, phase.end) for phase in queued] == [(first.ended_at, second.started_at)]


def test_a_run_that_waits_says_why_and_a_cancelled_one_holds_nobody_up(job, start, slurm, cordee, training):
    run = start(job(training.run, HELD))
    assert "held in the queue: JobHeldUser" in cordee("watch", "--once").stdout
    assert "`cordee advise" in cordee("show").stdout
    slurm.command("scancel", run.job)
    (run.folder.root.parents[1] / "cache" / "cordee").mkdir(parents=True, exist_ok=True)
    for answer in (run.folder.root.parents[1] / "cache" / "cordee").glob("slurm-jobs-*"):
        answer.unlink()  # as if a minute had passed
    followed = cordee("logs", "-f")
    assert followed.returncode == 0, followed.stderr
    shown = cordee("show").stdout
    assert "state       cancelled: its job was cancelled" in shown
    assert ".out" not in shown


@pytest.mark.gate
def test_every_bad_end_points_to_advice(job, start, cordee):
    run = start(job("python -c 'raise SystemExit(7)'", "[need]\nnodes = 1\n[restart]\nretries = 0"))
    run.wait_end()
    line = f"`cordee advise {run.folder.id}` says why, and what to change"
    assert line in cordee("show").stdout
    assert line.replace("`", "") in cordee("report").stdout.replace("`", "").replace("\n               ", " ")
    assert "the run failed" in cordee("show").stdout
