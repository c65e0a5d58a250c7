"""Saving and restoring a training with PyTorch: whole or not at all, and exact."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from torch import nn

import cordee
from cordee.client import rank as client_rank
from cordee.client.channel import ChannelReader, ChannelWriter, create_channel
from cordee.errors import CheckpointError

TRAINING = """
import hashlib, os, random, sys
import torch
import torch.distributed as dist
from torch import nn
import cordee
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Dropout(0.1), nn.Linear(16, 1)))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10)
saver = cordee.checkpointer(model, optimizer, extra={"scheduler": scheduler}, folder=sys.argv[1], every_steps=4, keep=2)
torch.manual_seed(rank); random.seed(rank)
first = saver.restore()
for step in range(first, 30):
    if len(sys.argv) > 2 and step == int(sys.argv[2]) and rank == 1:
        os.kill(os.getpid(), 9)
    x = torch.randn(4, 8) * random.random()
    loss = model(x).pow(2).mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step(); scheduler.step()
    if saver.due(step):
        saver.save(step)
weights = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
sys.stdout.write(f"{first} {hashlib.sha256(weights).hexdigest()}" + chr(10))
dist.destroy_process_group()
"""


def made(folder, **more):
    torch.manual_seed(3)
    model = nn.Linear(4, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    return model, optimizer, cordee.checkpointer(model, optimizer, folder=folder, **more)


class Position:
    def __init__(self, at: int) -> None:
        self.at = at

    def state_dict(self):
        return {"at": self.at}

    def load_state_dict(self, state):
        self.at = state["at"]


def test_model_optimizer_generators_and_position_come_back(tmp_path):
    position = Position(41)
    model, optimizer, saver = made(tmp_path, data=position)
    assert saver.restore() == 0
    saver.save(9)
    expected = (torch.rand(3), random.random())
    before = {name: value.clone() for name, value in model.state_dict().items()}
    moments = optimizer.state_dict()["state"][0]["exp_avg"].clone()
    other = Position(0)
    torch.manual_seed(99)
    fresh = nn.Linear(4, 2)
    fresh_optimizer = torch.optim.AdamW(fresh.parameters())
    assert cordee.checkpointer(fresh, fresh_optimizer, data=other, folder=tmp_path).restore() == 10
    assert all(torch.equal(before[name], value) for name, value in fresh.state_dict().items())
    assert torch.equal(fresh_optimizer.state_dict()["state"][0]["exp_avg"], moments)
    assert other.at == 41
    assert torch.equal(torch.rand(3), expected[0])
    assert random.random() == expected[1]


def test_a_save_tells_the_run_how_long_it_took_and_what_it_wrote(tmp_path, monkeypatch):
    create_channel(tmp_path / "1-0.channel")
    writer = ChannelWriter(tmp_path / "1-0.channel")
    monkeypatch.setattr(client_rank, "writer", writer)
    _, _, saver = made(tmp_path / "saved")
    began = time.time()
    target = saver.save(9)
    ended = time.time()
    reader = ChannelReader(tmp_path / "1-0.channel")
    ((_, moment, step, said),), _ = reader.read()
    assert step == 9
    assert said["cordee/checkpoint_bytes"] == sum(file.stat().st_size for file in Path(target).iterdir())
    assert 0 < said["cordee/checkpoint_seconds"] <= moment - began + 0.01
    assert began <= moment <= ended
    assert said["cordee/checkpoint_blocking"] == 1
    writer.close()
    reader.close()


def test_only_the_newest_few_stay_and_foreign_files_are_left_alone(tmp_path):
    (tmp_path / "step-000000001.pt").write_bytes(b"somebody else's")
    _, _, saver = made(tmp_path, keep=2)
    for step in (5, 6, 7, 8):
        saver.save(step)
    assert sorted(os.listdir(tmp_path)) == ["step-000000001.pt", "step-000000007", "step-000000008"]


def test_a_damaged_newest_is_passed_over_with_a_warning(tmp_path):
    _, _, saver = made(tmp_path)
    saver.save(1)
    newest = saver.save(2)
    for name in os.listdir(newest):
        if name.endswith(".distcp"):
            path = os.path.join(newest, name)
            size = os.path.getsize(path)
            with open(path, "wb") as file:
                file.write(b"\0" * size)
    with pytest.warns(UserWarning, match="step-000000002"):
        assert made(tmp_path)[2].restore() == 2


def test_when_none_can_be_loaded_it_says_so(tmp_path):
    _, _, saver = made(tmp_path)
    saver.save(1)
    other = cordee.checkpointer(nn.Linear(7, 7), folder=tmp_path)
    with (
        pytest.warns(UserWarning, match="cannot be loaded"),
        pytest.raises(CheckpointError, match="no checkpoint can be loaded"),
    ):
        other.restore()


def test_a_step_that_is_saved_again_replaces_the_first(tmp_path):
    model, _, saver = made(tmp_path)
    saver.save(4)
    with torch.no_grad():
        model.weight.fill_(7.0)
    saver.save(4)
    fresh, _, again = made(tmp_path)
    assert again.restore() == 5
    assert torch.equal(fresh.weight, torch.full((2, 4), 7.0))
    assert os.listdir(tmp_path) == ["step-000000004"]


def test_a_kill_between_the_two_renames_of_a_repeated_step_loses_nothing(tmp_path):
    _, _, saver = made(tmp_path)
    saver.save(4)
    os.rename(tmp_path / "step-000000004", tmp_path / ".step-000000004.tmp-1.old")
    assert made(tmp_path)[2].restore() == 5
    assert os.listdir(tmp_path) == ["step-000000004"]


def test_a_folder_that_cannot_be_written_names_the_older_one(tmp_path):
    _, _, saver = made(tmp_path / "there")
    saver.save(1)
    blocked = tmp_path / "file"
    blocked.write_text("")
    _, _, other = made(blocked / "below")
    with pytest.raises(CheckpointError, match="step-000000002 could not be saved"):
        other.save(2)


def test_due_follows_steps_or_the_clock(tmp_path):
    by_steps = made(tmp_path, every_steps=3)[2]
    assert [by_steps.due(step) for step in range(6)] == [False, False, True, False, False, True]
    by_clock = made(tmp_path, every_s=0.0001)[2]
    time.sleep(0.001)
    assert by_clock.due(0) is True
    assert made(tmp_path)[2].due(0) is False


# For each line that it reads, another process that saves until it is killed; torch is imported once for all.
WRITERS = """
import os, signal, sys, torch, cordee
from torch import nn
for _ in sys.stdin:
    pid = os.fork()
    if not pid:
        saver = cordee.checkpointer(nn.Linear(300, 300), folder=sys.argv[1], keep=2)
        step = saver.restore()
        saver.save(step)
        print("goes", os.getpid(), flush=True)
        while True:
            step += 1
            saver.save(step)
    assert os.waitpid(pid, 0)[1] == signal.SIGKILL
    print("killed", flush=True)
"""


@pytest.mark.slow
def test_a_writer_killed_at_any_moment_leaves_the_older_complete(tmp_path):
    rng = random.Random(5)
    newest = 0
    command = [sys.executable, "-c", WRITERS, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as writers:
        for _ in range(6):
            writers.stdin.write("another\n")
            word, pid = writers.stdout.readline().split()
            assert word == "goes"
            time.sleep(rng.uniform(0.05, 0.4))
            os.kill(int(pid), signal.SIGKILL)
            assert writers.stdout.readline() == "killed\n"
            fresh = cordee.checkpointer(nn.Linear(300, 300), folder=tmp_path)
            reached = fresh.restore()
            assert reached >= newest
            newest = reached
        writers.stdin.close()
    assert newest > 6


@pytest.mark.slow
def test_a_training_killed_and_resumed_ends_bit_identical(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(TRAINING)

    def run(folder, *more):
        command = [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--standalone",
            "--nproc-per-node",
            "2",
            str(script),
            str(folder),
            *more,
        ]
        return subprocess.run(
            command, capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"}
        )

    undisturbed = run(tmp_path / "a")
    assert undisturbed.returncode == 0, undisturbed.stderr
    assert run(tmp_path / "b", "17").returncode != 0
    resumed = run(tmp_path / "b")
    assert resumed.returncode == 0, resumed.stderr
    first = {line.split()[0] for line in resumed.stdout.splitlines()}
    assert first == {"16"}
    assert {line.split()[1] for line in resumed.stdout.splitlines()} == {
        line.split()[1] for line in undisturbed.stdout.splitlines()
    }
