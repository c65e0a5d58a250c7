"""What goes wrong around a run on a real Slurm: daemons, the controller, memory, the Prolog, a slow disk."""

from __future__ import annotations

import subprocess
import tempfile
import threading
import time
from pathlib import Path

import pytest

from cordee.backends.slurm.node.commands import job_record
from cordee.core.errors import SubmitError
from cordee.faces.cli.follow import RunFollower
from cordee.job.submit.settle import settle
from cordee.runs.index import list_runs
from cordee.runs.state import RunState
from cordee.testing.slurm import DisposableSlurm
from support.runs.real_run import SlurmRun

pytestmark = pytest.mark.usefixtures("real")

SPARE = "[need]\nnodes = 2\nspare_nodes = 1"


def under_way(state: RunState) -> bool:
    return state.step is not None and state.step > 20


def end_far_later(run, training) -> None:
    """Let the training end when it has gone on for 180 steps."""
    run.wait(lambda state: state.step is not None and state.step > 200, 120)
    training.may_end()


@pytest.mark.campaign
def test_the_daemon_of_a_middle_node_may_die(job, start, slurm, training):
    run = start(job(training.run, SPARE))
    run.wait(under_way)
    host = job_record(run.job)["BatchHost"]
    slurm.kill_slurmd(next(node for node in ("n1", "n2", "n3") if node != host))
    end_far_later(run, training)
    state = run.wait(lambda state: state.ended, 120)
    assert (state.state, state.segments) == ("finished", 1), state.text
    assert b"counted to 60" in run.output(0)


def test_the_daemon_of_the_batch_host_may_die(job, start, slurm, training):
    run = start(job(training.run))
    run.wait(under_way)
    slurm.kill_slurmd(job_record(run.job)["BatchHost"])
    end_far_later(run, training)
    state = run.wait(lambda state: state.ended, 120)
    assert state.state == "finished", state.text
    assert b"counted to 60" in run.output(0)


def test_the_controller_may_be_away_while_the_run_ends(job, start, slurm, training):
    run = start(job(training.run))
    run.wait(under_way)
    slurm.stop_controller()
    training.may_end()
    state = run.wait(lambda state: state.ended)
    assert state.state == "finished", state.text
    slurm.start_controller()


def test_a_chain_goes_on_when_the_controller_was_away_at_the_end_of_a_segment(job, start, slurm, training):
    run = start(job(training.run, '[need]\nnodes = 2\ntime = "2h"\npartition = "debug"'))
    run.wait(under_way)
    slurm.command("scancel", "--signal=USR1", "--batch", run.job)
    run.wait(lambda state: run.events("stop_requested"))
    slurm.stop_controller()
    run.wait(lambda state: state.chain)
    time.sleep(5)
    slurm.start_controller()
    run.wait(lambda state: state.segments == 2, 180)
    training.may_end()
    state = run.wait_end()
    assert (state.state, state.segments) == ("finished", 2), state.text


def test_following_outlasts_a_controller_that_is_away(job, start, slurm, training):
    run = start(job(training.run))
    run.wait(under_way)
    slurm.stop_controller()
    training.may_end()
    back = threading.Timer(8.0, slurm.start_controller)
    back.start()
    state = RunFollower(run.folder, quiet=True).follow()
    back.join()
    assert (state.state, state.exit_code) == ("finished", 0)


def test_a_run_whose_job_slurm_has_forgotten_is_over(job, tmp_path, monkeypatch, training):
    with DisposableSlurm(Path(tempfile.mkdtemp(prefix="cordee-slurm-")), nodes=1, settings={"MinJobAge": "2"}) as slurm:
        for name, value in slurm.env.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        slurm.drain("n1", "test")
        run = SlurmRun(job(training.run, "[need]\nnodes = 1"), tmp_path / "runs")
        run.start()
        slurm.command("scancel", run.job)
        deadline = time.monotonic() + 60
        while job_record(run.job) is not None and time.monotonic() < deadline:
            time.sleep(0.5)
        assert job_record(run.job) is None
        state = settle(run.folder, run.place.standing(run.folder, age_s=0.0))
        assert (state.state, state.reason) == ("failed", "job_gone")
        assert "does not know" in state.text


def test_a_job_that_was_cancelled_while_it_waited_is_over(job, start, slurm, training):
    for node in slurm.node_names:
        slurm.drain(node, "test")
    run = start(job(training.run))
    slurm.command("scancel", run.job)
    state = RunFollower(run.folder, quiet=True).follow()
    assert (state.state, state.exit_code) == ("cancelled", 1)


def test_a_held_job_says_so_and_runs_when_it_is_released(job, start, slurm):
    for node in slurm.node_names:
        slurm.drain(node, "test")
    run = start(job("python train.py 10 0.05"))
    slurm.command("scontrol", "hold", run.job)
    assert run.place.standing(run.folder, age_s=0.0).reason in ("JobHeldUser", "JobHeldAdmin")
    for node in slurm.node_names:
        slurm.resume(node)
    slurm.command("scontrol", "release", run.job)
    assert run.wait_end().state == "finished"


@pytest.mark.gate
def test_a_refused_job_leaves_a_run_that_failed(job, start, tmp_path, training):
    folder = job(training.run, '[need]\nnodes = 1\n[slurm]\noptions = ["--licenses=none:1"]')
    with pytest.raises(SubmitError, match="Slurm refused the job") as caught:
        start(folder)
    assert caught.value.next
    (run,) = list_runs(tmp_path / "runs")
    assert (run.state, run.reason) == ("failed", "refused")


def test_a_failing_prolog_drains_the_node_and_the_run_waits_for_another(job, start, slurm):
    slurm.set_prolog("exit 1")
    run = start(job("python train.py 10 0.05", "[need]\nnodes = 1"))
    deadline = time.monotonic() + 60
    while not any("DRAIN" in state for state in slurm.states().values()) and time.monotonic() < deadline:
        time.sleep(0.2)
    slurm.set_prolog(None)
    for node, state in slurm.states().items():
        if "DRAIN" in state:
            slurm.resume(node)
    if job_record(run.job).get("Reason", "").startswith("launch"):
        slurm.command("scontrol", "release", run.job)
    assert run.wait_end().state == "finished"


SLOW = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <unistd.h>
#include <stdio.h>
#include <fcntl.h>
#include <string.h>
static void wait_if_below(int fd) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (size > 0) { path[size] = 0; if (strstr(path, "/runs/")) usleep(300000); }
}
int fsync(int fd) { wait_if_below(fd); return ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(fd); }
"""


@pytest.mark.campaign
def test_a_run_folder_on_a_slow_file_system_only_costs_time(job, start, tmp_path, monkeypatch):
    source, library = tmp_path / "slow.c", tmp_path / "slow.so"
    source.write_text(SLOW)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    monkeypatch.setenv("LD_PRELOAD", str(library))
    run = start(job("python train.py 40 0.05", SPARE))
    state = run.wait_end()
    assert (state.state, state.segments, state.restarts) == ("finished", 1, 0), state.text
    assert run.events("node_lost") == []
