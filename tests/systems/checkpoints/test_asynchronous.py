"""Checkpoints that are written beside the training: what was copied, whole or not at all, whoever is killed."""

from __future__ import annotations

import os
import random
import resource
import signal
import subprocess
import sys
import time
import warnings

import pytest

import cordee
from cordee.core.errors import CheckpointError
from cordee.systems.checkpoints.node.folder import find_checkpoints
from cordee.systems.checkpoints.node.write_rate import StepTimes, WriteRate
from cordee.testing.patience import wait_until

SLOWLY = 4096.0


@pytest.fixture(scope="module", autouse=True)
def _torch():
    global nn, torch
    import torch
    from torch import nn


@pytest.fixture
def training():
    """Return a function that makes a model, its optimizer and a saver; what is still under way at the end is awaited."""
    savers = []

    def make(folder, model=None, **more):
        model = model or nn.Linear(64, 64)
        optimizer = torch.optim.AdamW(model.parameters())
        model(torch.ones(1, 64)).sum().backward()
        optimizer.step()
        saver = cordee.checkpointer(model, optimizer, folder=folder, asynchronous=True, **more)
        savers.append(saver)
        return model, optimizer, saver

    yield make
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for saver in savers:
            saver._background.close()


def writer_of(saver):
    return saver._background._writer.process.pid


def filled(model, value):
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(value)


def names(folder):
    return sorted(os.listdir(folder))


def test_what_was_copied_is_saved_and_pytorch_alone_reads_it(tmp_path, training):
    import torch.distributed.checkpoint as dcp

    model, _, saver = training(tmp_path)
    filled(model, 1.0)
    path = saver.save(3)
    filled(model, 2.0)
    saver.wait()
    state = {"model": {name: torch.zeros_like(value) for name, value in model.state_dict().items()}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.load(state, checkpoint_id=path)
    assert {float(value.unique()) for value in state["model"].values()} == {1.0}
    again, _optimizer, other = training(tmp_path)
    assert other.restore() == 4
    assert {float(value.unique()) for value in again.state_dict().values()} == {1.0}
    assert names(path) == [".metadata", "__0_0.distcp", "cordee.json", "rank-0.pt"]


def test_a_save_during_a_save_hurries_it_and_both_are_complete(tmp_path, training):
    model, _, saver = training(tmp_path, pace=SLOWLY)
    for step, value in ((1, 1.0), (2, 2.0)):
        filled(model, value)
        saver.save(step)
    saver.wait()
    assert names(tmp_path) == ["step-000000001", "step-000000002"]


def test_until_it_is_complete_there_is_none(tmp_path, training):
    saver = training(tmp_path, pace=SLOWLY)[2]
    path = saver.save(1)
    time.sleep(0.3)
    assert not os.path.exists(path)
    assert find_checkpoints(tmp_path) == []
    saver.wait()
    assert [found.path for found in find_checkpoints(tmp_path)] == [path]


def test_a_signal_to_the_writer_makes_it_hurry(tmp_path, training):
    saver = training(tmp_path, pace=SLOWLY)[2]
    path = saver.save(1)
    wait_until(lambda: any(name.endswith(".distcp") for _, _, files in os.walk(tmp_path) for name in files), 30)
    os.kill(writer_of(saver), signal.SIGTERM)
    wait_until(lambda: os.path.exists(path), 30)


def test_a_writer_that_is_killed_costs_its_save_and_the_next_one_is_waited_for(tmp_path, training):
    saver = training(tmp_path, pace=SLOWLY)[2]
    saver.save(1)
    saver.wait()
    saver.save(2)
    os.kill(writer_of(saver), signal.SIGKILL)
    with pytest.warns(
        RuntimeWarning, match=r"step 2 could not be saved .* ended by itself .*step-000000001 is complete"
    ):
        path = saver.save(3)
    assert os.path.exists(path)
    saver.save(4)
    saver.wait()
    assert [found.step for found in find_checkpoints(tmp_path)] == [1, 3, 4]


def test_a_disk_that_is_full_is_told_and_leaves_the_older_one(tmp_path, training):
    saver = training(tmp_path, pace=SLOWLY)[2]
    saver.save(1)
    saver.wait()
    resource.prlimit(writer_of(saver), resource.RLIMIT_FSIZE, (1000, 1000))
    saver.save(2)
    with pytest.warns(RuntimeWarning), pytest.raises(CheckpointError, match=r"step 2 could not be saved .* too large"):
        saver.wait()
    assert names(tmp_path) == ["step-000000001"]


def test_where_memory_does_not_suffice_the_training_waits_instead(tmp_path, training, monkeypatch):
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(1 << 40))
    model, _, saver = training(tmp_path, pace=SLOWLY)
    filled(model, 5.0)
    saver.save(1)
    assert "a snapshot needs" in saver._background.lack
    filled(model, 6.0)
    saver.wait()
    again, _, other = training(tmp_path)
    assert other.restore() == 2
    assert again.weight.unique().tolist() == [5.0]


def test_tied_tensors_come_back_tied_and_tensors_without_data_are_refused(tmp_path, training):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(64, 64, bias=False), nn.Linear(64, 64, bias=False)
            self.last.weight = self.first.weight

        def forward(self, x):
            return self.last(self.first(x))

    model, _, saver = training(tmp_path, Tied())
    expected = model.first.weight.detach().clone()
    saver.save(1)
    saver.wait()
    again, _, other = training(tmp_path, Tied())
    assert other.restore() == 2
    assert torch.equal(again.first.weight, expected)
    assert again.last.weight is again.first.weight
    bare = cordee.checkpointer(nn.Linear(4, 4, device="meta"), folder=tmp_path / "meta", asynchronous=True)
    with pytest.raises(CheckpointError, match=r"step-000000001 could not be saved: .*weight.* has no data"):
        bare.save(1)
    assert names(tmp_path / "meta") == []


def test_milestones_stay_beside_the_newest(tmp_path, training):
    saver = training(tmp_path, keep=1, milestones=10)[2]
    for step in (5, 9, 14, 19, 23, 28):
        saver.save(step)
    saver.wait()
    assert [found.step for found in find_checkpoints(tmp_path)] == [14, 23, 28]


@pytest.mark.parametrize("pace", ["slow", "0", -1, "nan", "inf"])
def test_a_pace_that_is_none_is_refused(tmp_path, pace):
    with pytest.raises(CheckpointError, match="no pace"):
        cordee.checkpointer(folder=tmp_path, asynchronous=True, pace=pace)


# Two ranks that save step after step beside their training until they are killed; torch is imported once for all.
# `FOLDER crash`: rank 0 fails after its third save. `FOLDER end`: both end after it, without waiting.
RANKS = """
import os, signal, sys
import torch, torch._dynamo, torch.distributed.checkpoint.state_dict
import torch.distributed as dist
import cordee
for turn, line in enumerate(sys.stdin):
    folder, how = line.split()
    ranks = []
    for rank in range(2):
        pid = os.fork()
        if not pid:
            os.setpgid(0, ranks[0] if ranks else 0)
            torch.set_num_threads(1)
            dist.init_process_group("gloo", init_method=f"file://{folder}.store-{turn}", rank=rank, world_size=2)
            saver = cordee.checkpointer(torch.nn.Linear(400, 400), folder=folder, keep=2, asynchronous=True, pace="20e6")
            first = step = saver.restore()
            while True:
                saver.save(step)
                if step == first and rank == 0:
                    os.write(1, f"goes {os.getpid()}\\n".encode())
                step += 1
                if step == first + 3 and how == "crash" and rank == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                if step == first + 3 and how == "end":
                    dist.destroy_process_group()
                    sys.exit()
        os.setpgid(pid, ranks[0] if ranks else 0)
        ranks.append(pid)
    ended = [os.wait()]
    if how == "crash":
        os.kill(ranks[1], signal.SIGKILL)
    ended.append(os.wait())
    os.write(1, f"ended {sorted(status for _, status in ended)}\\n".encode())
"""


@pytest.mark.usefixtures("real")
def test_ranks_and_writers_that_are_killed_at_any_moment_leave_whole_checkpoints(tmp_path):
    rng = random.Random(7)
    folder = tmp_path / "saved"
    command = [sys.executable, "-W", "ignore", "-c", RANKS]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, env=environment
    ) as ranks:
        newest = 0
        for _ in range(4):
            ranks.stdin.write(f"{folder} kill\n")
            word, pid = ranks.stdout.readline().split()
            assert word == "goes"
            time.sleep(rng.uniform(0.0, 0.4))
            os.killpg(int(pid), signal.SIGKILL)
            assert ranks.stdout.readline() == "ended [9, 9]\n"
            model = nn.Linear(400, 400)
            reached = cordee.checkpointer(model, folder=folder).restore()
            assert reached >= newest
            newest = reached
        for how, ended, more in (("crash", "[9, 9]", 3), ("end", "[0, 0]", 3)):
            ranks.stdin.write(f"{folder} {how}\n")
            assert ranks.stdout.readline().startswith("goes")
            assert ranks.stdout.readline() == f"ended {ended}\n"
            wait_until(lambda: find_checkpoints(folder)[-1].step == newest + more - 1, 30)  # noqa: B023
            newest = cordee.checkpointer(nn.Linear(400, 400), folder=folder).restore()
        ranks.stdin.close()


def test_the_rate_follows_the_next_save_and_goes_down_where_steps_are_slower():
    rate = WriteRate(8 << 30, 100.0, "auto", 0.0)
    assert rate.per_s == (8 << 30) / 50
    for second in range(1, 20):
        rate.look(second << 27, 1.0, 1.5, float(second))
    assert rate.per_s == pytest.approx(((8 << 30) - (19 << 27)) / (80 - 19))
    for second in range(20, 60):
        rate.look(19 << 27, 1.0, 1.0, float(second))
    assert rate.per_s >= (8 << 30) / 50
    assert WriteRate(1, None, "off", 0.0).per_s == float("inf")
    assert WriteRate(1 << 20, 3600.0, "auto", 0.0).per_s == 64 << 20
    assert WriteRate(1 << 40, 1.0, 5e6, 0.0).per_s == 5e6
    assert [rate.is_late(0, second) for second in (1.0, 15.0, 17.0, 99.0)] == [False, False, True, True]


def test_what_has_time_is_written_by_a_thread_that_comes_last(tmp_path, training):
    saver = training(tmp_path, pace=SLOWLY)[2]
    saver.save(1)
    tasks = f"/proc/{writer_of(saver)}/task"

    def niceness():
        threads = [os.path.join(tasks, name, "stat") for name in os.listdir(tasks)]
        return sorted(os.getpriority(os.PRIO_PROCESS, int(name.split("/")[-2])) for name in threads)

    wait_until(lambda: 19 in niceness(), 30)  # which the thread says of itself
    assert niceness() == [os.getpriority(os.PRIO_PROCESS, 0), 19]
    saver.wait()


def test_step_times_leave_out_what_was_no_step(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    times = StepTimes()
    for step in range(6):
        times.saw(step, beside=False)
        now[0] += 2.0
    assert times.quiet_s == 2.0
    now[0] += 100.0
    times.broke_off()
    for step in range(6, 9):
        times.saw(step, beside=True)
        now[0] += 3.0
    assert (times.quiet_s, times.recent_s) == (2.0, 0.0)
    times.saw(9, beside=True)
    assert (times.recent_s, times.limit_s) == (3.0, 2.1)


def test_steps_that_vary_are_slower_only_beyond_what_they_vary_by(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    times, rng = StepTimes(), random.Random(3)
    for step in range(200):
        times.saw(step, beside=step > 150)
        now[0] += rng.lognormvariate(0.0, 0.5)
        assert times.recent_s <= times.limit_s or not times.recent_s
    for step in range(200, 220):
        times.saw(step, beside=True)
        now[0] += 2 * rng.lognormvariate(0.0, 0.5)
    assert times.recent_s > times.limit_s
