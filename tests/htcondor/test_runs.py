"""Runs on a real pool of HTCondor, whose machines share no files with this one: they travel, and come home."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from cordee.testing.patience import wait_until
from cordee.testing.programs import COUNTING
from support.data.corpora import pack_corpus

pytestmark = pytest.mark.usefixtures("real")
EXAMPLE = Path(__file__).parents[2] / "examples" / "char-gpt"

SEEING = """
import os, pathlib, sys
import cordee
here = pathlib.Path.cwd()
print("data", sorted(os.listdir("set")), os.environ["CORDEE_DATA_SET"] == str(pathlib.Path("set").resolve()))
print("home", os.path.isdir(os.environ["HOME"]), "submitter", os.path.exists(sys.argv[1]))
(here / "made").mkdir()
(here / "made" / "table.csv").write_text("1,2")
(here / "latest").symlink_to(here / "made")
cordee.log(step=1, loss=0.5)
"""


def test_a_run_travels_with_its_code_and_data_and_comes_home_with_what_it_made(job, start, tmp_path):
    folder = job(f"python train.py {tmp_path}", '[data.set]\nfrom = "set"', SEEING)
    (folder / "set").mkdir()
    (folder / "set" / "a.bin").write_bytes(b"a" * 1000)
    (folder / "link").symlink_to("set")  # HTCondor itself takes no link to a folder
    run = start(folder)
    state = run.wait_end()
    assert (state.state, state.exit_code) == ("finished", 0), state.text
    assert b"data ['a.bin'] True\nhome True submitter False\n" in run.output()
    assert (run.folder.code / "made" / "table.csv").read_text() == "1,2"
    assert (run.folder.code / "train.py").read_text() == SEEING
    shown = json.loads(run.cordee("show", "--json").stdout)
    assert (shown["state"], shown["segments"], shown["job"]) == ("finished", 1, run.job)
    assert run.cordee("report").returncode == 0
    received = re.findall(r"(\d+)  -  Run Bytes Received By Job", (run.folder.submit / "htcondor.log").read_text())
    assert int(received[-1]) < 2_000_000


def test_what_it_says_is_seen_while_it_runs(job, start, htcondor):
    run = start(job("python train.py 4000 0.1"))
    run.wait_step(5)
    shown = run.cordee("show")
    assert "has its nodes" in shown.stdout
    assert re.search(r"last word +\S.* ago", shown.stdout)
    wait_until(lambda: "from 0" in run.cordee("logs").stdout, 30.0)
    wait_until(lambda: "step-0000" in htcondor.command("condor_q", run.job, "-af", "CordeeCheckpoint"), 30.0)
    assert htcondor.command("condor_q", run.job, "-af", "CordeeState").strip() == "running"
    cancelled = run.cordee("cancel")
    assert cancelled.returncode == 0, cancelled.stderr
    state = run.wait_end()
    assert state.state == "cancelled"
    assert b"stopped at" in run.output()
    saved = re.findall(rb"stopped at (\d+)", run.output())
    assert (run.folder.checkpoints / f"step-{int(saved[-1]) + 1:06d}").is_file()


def test_a_cancelled_run_goes_on_where_it_was(job, start):
    run = start(job("python train.py 60 0.1"))
    run.wait_step(5)
    assert run.cordee("cancel").returncode == 0
    run.wait_end()
    resumed = run.cordee("resume")
    assert resumed.returncode == 0, resumed.stderr
    begun = [int(step) for step in re.findall(rb"from (\d+)", run.output())]
    assert begun[0] == 0
    assert begun[-1] > 5
    assert (run.state.state, run.state.segments) == ("finished", 2)


def test_evicted_twice_and_lost_once_it_ends_with_the_weights_of_an_undisturbed_run(start, htcondor, tmp_path):
    folder = tmp_path / "job"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("runs", "corpus", "__pycache__"))
    pack_corpus(folder / "corpus")
    flags = {"need__nodes": 1, "run": "python train.py --steps 200", "vet__max_load": 1000.0}
    undisturbed = start(folder, **flags)
    undisturbed.wait_end()
    run = start(folder, **flags)
    for segment in (1, 2):
        run.wait(lambda state, segment=segment: state.segments == segment and (state.step or 0) > 20 * segment)
        htcondor.command("condor_vacate_job", run.job)
        run.wait(lambda state, segment=segment: len(state.chain) == segment)
    run.wait(lambda state: state.segments == 3 and (state.step or 0) > 60)
    machine = htcondor.command("condor_q", run.job, "-af", "RemoteHost").split("@")[1]
    htcondor.kill_machine(machine)
    killed_at = time.time()
    state = run.wait_end()
    assert (state.state, state.segments) == ("finished", 4), state.text
    assert state.segment_states[2].ended_at < killed_at + 10.0  # the lease of 20 s is no training
    assert [one["reason"] for one in state.chain] == ["preempted", "preempted", "lost"]
    assert all(one["checkpoint"] for one in state.chain)
    weights = [re.findall(rb"weights (\w+)", one.output())[-1] for one in (undisturbed, run)]
    assert weights[0] == weights[1]


def test_an_eviction_before_anything_was_saved_loses_nothing_of_the_journal(job, start, htcondor):
    run = start(job("python train.py 30 0.1"))
    run.wait(lambda state: state.segments == 1)
    htcondor.command("condor_vacate_job", run.job)
    state = run.wait_end()
    assert (state.state, state.segments) == ("finished", 2)


def test_a_run_that_is_killed_without_a_word_starts_again(job, start, htcondor):
    run = start(job("python train.py 60 0.1"))
    run.wait(lambda state: state.checkpoint and (run.folder.checkpoints / state.checkpoint).exists())
    htcondor.command("condor_vacate_job", "-fast", run.job)
    state = run.wait_end()
    assert (state.state, state.segments) == ("finished", 2)
    begun = [int(step) for step in re.findall(rb"from (\d+)", run.output())]
    assert begun[-1] >= 5  # what was saved had come home


def test_the_access_point_may_die_under_it(job, start, htcondor, profile):
    profile.write_text(
        profile.read_text().replace("= 20 ", "= 300 ")
    )  # on a busy machine it is away for longer than 20 s
    run = start(job("python train.py 120 0.1"))
    run.wait_step(5)
    job_before = run.job
    htcondor.kill_schedd()
    state = run.wait_end()
    # On a busy machine HTCondor may not find the running job again, and starts it once more.
    assert (state.state, state.job, state.restarts) == ("finished", job_before, 0)


def test_a_job_that_was_removed_by_hand_is_over_and_can_be_resumed(job, start, htcondor):
    run = start(job("python train.py 80 0.1"))
    run.wait(lambda state: state.checkpoint and (run.folder.checkpoints / state.checkpoint).exists())
    htcondor.command("condor_rm", run.job)
    wait_until(lambda: json.loads(run.cordee("show", "--json").stdout)["state"] == "cancelled", 30.0)
    assert "via condor_rm (by user" in run.state.text
    resumed = run.cordee("resume")
    assert resumed.returncode == 0, resumed.stderr
    assert int(re.findall(rb"from (\d+)", run.output())[-1]) >= 5


def test_what_does_not_fit_into_one_start_goes_on_in_the_next(job, start, profile):
    profile.write_text(profile.read_text() + '[classes.short]\nmax_time = "14s"\n')
    script = COUNTING + "\nwith open('starts.txt', 'a') as file:\n    file.write(f'from {start}\\n')\n"
    run = start(job("python train.py 150 0.1", script=script), need__time=60.0, checkpoint__grace=4.0)
    state = run.wait_end()
    assert state.state == "finished", state.text
    assert [one["reason"] for one in state.chain] == ["time_limit"] * (state.segments - 1)
    assert state.segments > 1
    starts = (run.folder.code / "starts.txt").read_text().splitlines()
    assert len(starts) == state.segments  # what a script keeps beside its code goes along, too
    assert not list(run.folder.checkpoints.glob(".kept-*"))


def test_data_that_is_gone_holds_the_run_until_it_is_back(job, start, tmp_path, htcondor):
    folder = job("python train.py 10 0.1", '[data.set]\nfrom = "set"')
    (folder / "set").mkdir()
    (folder / "set" / "a").write_text("a")
    for machine in htcondor.machine_names:
        htcondor.kill_machine(machine)
    run = start(folder)
    (folder / "set").rename(folder / "away")
    for machine in htcondor.machine_names:
        htcondor.start_machine(machine)
    held = run.wait_standing("held")
    assert str(folder / "set") in held.reason
    assert f"condor_release {run.job}" in held.next
    (folder / "away").rename(folder / "set")
    htcondor.command("condor_release", run.job)
    assert run.wait_end().state == "finished"


def test_a_run_over_its_memory_is_held_and_told_what_to_set(job, start):
    script = "x = bytearray(400 << 20)\nimport time\ntime.sleep(600)\n"
    run = start(job("python train.py", '[need]\nmemory = "64MB"', script))
    held = run.wait_standing("held")
    assert "memory" in held.reason
    assert "[need] memory = " in held.next
    shown = run.cordee("show").stdout
    assert "held in the queue" in shown


def test_a_run_in_the_queue_is_cancelled_at_once_and_keeps_what_an_eviction_left(job, start, htcondor):
    run = start(job("python train.py 4000 0.1"))
    run.wait_step(12)
    htcondor.command("condor_hold", run.job)
    run.wait_standing("held")
    cancelled = run.cordee("cancel")
    assert cancelled.returncode == 0, cancelled.stderr
    assert run.state.state == "cancelled"
    newest = run.state.checkpoint
    assert newest
    assert (run.folder.checkpoints / newest).exists()
    assert htcondor.command("condor_q", "-af", "JobStatus").strip() == ""


def test_several_nodes_are_refused_with_what_to_do(job, profile, tmp_path, htcondor):
    done = subprocess.run(
        ["cordee", "check", str(job()), "--on", "htcondor", "--nodes", "2"],
        capture_output=True,
        text=True,
        check=False,
        env=dict(os.environ),
    )
    assert done.returncode != 0
    assert "gpus_per_node" in done.stderr


BIG = """
import os, cordee
cordee.log(step=1, loss=1.0)
os.makedirs("closed")
open("closed/secret", "w").write("s")
os.chmod("closed/secret", 0)
os.chmod("closed", 0o555)
with open("big.bin", "wb") as file:
    for _ in range(1500):
        file.write(os.urandom(1 << 20))
"""


def test_a_run_has_ended_when_what_it_made_is_at_home(job, start, htcondor):
    run = start(job("python train.py", '[need]\ndisk = "3GB"', BIG))
    events = run.folder.submit / "htcondor.log"
    wait_until(lambda: "Started transferring output" in events.read_text(), 120.0)
    htcondor.command("condor_vacate_job", "-fast", run.job)
    state = run.wait_end(300.0)
    assert state.state == "finished", state.text
    assert (run.folder.code / "big.bin").stat().st_size == 1500 << 20
    assert (run.folder.code / "closed" / "secret").read_text() == "s"


def test_a_killed_first_process_costs_what_had_not_come_home(job, start, htcondor):
    run = start(job("python train.py 80 0.1"))
    run.wait(lambda state: state.checkpoint and (run.folder.checkpoints / state.checkpoint).exists())
    (first,) = [
        int(path.parent.name)
        for path in Path("/proc").glob("[0-9]*/cmdline")
        if b"cordee.backends.htcondor.node.first" in _words(path) and run.folder.id.encode() in _words(path)
    ]
    os.kill(first, signal.SIGKILL)
    state = run.wait_end()
    assert (state.state, state.segments) == ("finished", 2), state.text
    assert int(re.findall(rb"from (\d+)", run.output())[-1]) >= 5
    assert run.folder.node_zip.is_file()
    assert json.loads(run.folder.plan.read_text())["folder"] == str(run.folder.root)


def _words(path: Path) -> list[bytes]:
    try:
        return path.read_bytes().split(b"\0")
    except OSError:
        return []


OVERWRITING = """
import os, pathlib, sys, time, cordee
path = pathlib.Path("out/last.pt")
path.parent.mkdir(exist_ok=True)
step = int(path.read_text()) if path.exists() else 0
print("from", step, flush=True)
while step < 60:
    step += 1
    time.sleep(0.2)
    cordee.log(step=step, loss=1.0)
    new = path.with_name("new")
    new.write_text(str(step))
    new.rename(path)
"""


def test_a_save_that_is_written_over_does_not_go_back_in_time(job, start, htcondor):
    run = start(job("python train.py", '[checkpoint]\npath = "out"\npattern = "last.pt"\nresume = "self"', OVERWRITING))
    home = run.folder.checkpoints / "last.pt"
    run.wait_step(6)
    htcondor.command("condor_vacate_job", run.job)
    run.wait(lambda state: state.segments == 2 and (state.step or 0) > 14)
    wait_until(lambda: home.exists() and int(home.read_text() or 0) > 12, 60.0)
    sent = int(home.read_text())
    htcondor.command("condor_vacate_job", "-fast", run.job)
    assert run.wait_end().state == "finished"
    begun = [int(step) for step in re.findall(rb"from (\d+)", run.output())]
    assert begun[-1] >= sent
    assert home.read_text() == "60"
    assert not [path.name for path in run.folder.checkpoints.iterdir() if path.name.startswith((".kept", ".sent"))]


def test_a_run_that_was_cancelled_in_the_queue_can_be_resumed(job, start, htcondor):
    for machine in htcondor.machine_names:
        htcondor.kill_machine(machine)
    run = start(job("python train.py 10 0.1"))
    assert run.cordee("cancel").returncode == 0
    for machine in htcondor.machine_names:
        htcondor.start_machine(machine)
    resumed = run.cordee("resume")
    assert resumed.returncode == 0, resumed.stderr
    assert run.state.state == "finished"
