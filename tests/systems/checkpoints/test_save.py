"""Saving and restoring a training with PyTorch: whole or not at all, and exact."""

from __future__ import annotations

import json
import os
import pickle
import random
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest

import cordee
from cordee.client import rank as client_rank
from cordee.core.errors import CheckpointError
from cordee.systems.checkpoints.node.folder import MANIFEST, read_manifest
from cordee.wire.channel import ChannelReader, ChannelWriter, create_channel
from cordee.wire.facts import CheckpointFact


@pytest.fixture(scope="module", autouse=True)
def _torch():
    """PyTorch, where these tests run: not in every process that only collects them."""
    global nn, torch
    import torch
    from torch import nn


# Trains with two ranks in the folder that it reads a line of, once more for each line, until a rank dies; torch is
# imported once for all. `FOLDER 17`: rank 1 is killed in step 17.
TRAINING = """
import hashlib, os, random, signal, sys
import torch, torch._dynamo, torch.distributed.checkpoint.state_dict
import torch.distributed as dist
from torch import nn
import cordee
def train(rank, store, folder, killed_in=None):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=2)
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Dropout(0.1), nn.Linear(16, 1)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10)
    saver = cordee.checkpointer(model, optimizer, extra={"scheduler": scheduler}, folder=folder, every_steps=4, keep=2)
    torch.manual_seed(rank); random.seed(rank)
    first = saver.restore()
    for step in range(first, 30):
        if step == killed_in and rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        x = torch.randn(4, 8) * random.random()
        loss = model(x).pow(2).mean()
        optimizer.zero_grad(); loss.backward(); optimizer.step(); scheduler.step()
        if saver.due(step):
            saver.save(step)
    weights = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
    os.write(1, f"{first} {hashlib.sha256(weights).hexdigest()}\\n".encode())
    dist.barrier()
for turn, line in enumerate(sys.stdin):
    folder, *killed_in = line.split()
    ranks = []
    for rank in range(2):
        pid = os.fork()
        if not pid:
            code = 1
            try:
                train(rank, f"{sys.argv[1]}/store-{turn}", folder, *map(int, killed_in))
                code = 0
            finally:
                os._exit(code)  # how threads of a group of processes end is no matter of checkpoints
        ranks.append(pid)
    ended = dict([os.wait()])
    if any(ended.values()):
        for pid in set(ranks) - set(ended):
            os.kill(pid, signal.SIGKILL)
    ended.update([os.wait()])
    print("ended", ended[ranks[1]], flush=True)  # the other one may fail before it is seen that this one was killed
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


@pytest.fixture
def of_run(monkeypatch):
    """Return a function that makes a saver as a rank of a run would."""

    def make(run, folder, **more):
        monkeypatch.setenv("CORDEE_RUN_ID", run)
        monkeypatch.setenv("CORDEE_ATTEMPT", "2")
        monkeypatch.setenv("CORDEE_EPOCH", "1")
        monkeypatch.setenv("CORDEE_RUN_DIR", "/runs/" + run)
        return made(folder, **more)

    return make


def steps(folder):
    return sorted(name for name in os.listdir(folder) if not name.startswith("."))


def test_a_run_restores_and_removes_only_what_it_saved_itself(tmp_path, of_run):
    before = of_run("a-1", tmp_path)[2]
    for step in (1000, 2000, 3000):
        before.save(step)
    saver = of_run("b-2", tmp_path, keep=2)[2]
    assert (saver.newest(), saver.restore()) == (None, 0)
    for step in (10, 20, 30):
        assert os.path.isdir(saver.save(step))
    assert [name[-4:] for name in steps(tmp_path)] == ["0020", "0030", "1000", "2000", "3000"]
    assert of_run("b-2", tmp_path)[2].restore() == 31
    assert of_run("a-1", tmp_path)[2].restore() == 3001
    manifest = read_manifest(tmp_path / "step-000000030")
    assert (manifest["run"], manifest["epoch"], manifest["attempt"]) == ("b-2", 1, 2)


def test_an_attempt_that_was_given_up_neither_saves_nor_removes_once_a_later_one_has_saved(
    tmp_path, of_run, monkeypatch
):
    late = of_run("a-1", tmp_path, keep=2)[2]
    late.save(10)
    with monkeypatch.context() as later:
        later.setenv("CORDEE_ATTEMPT", "3")
        saver = made(tmp_path, keep=2)[2]
        saver.save(5)
        hidden = tmp_path / ".step-000000006.tmp-a-1.3.0123abcd"
        hidden.mkdir()
    for step in (11, 12, 13):
        with pytest.raises(
            CheckpointError, match="attempt 3 of this run has saved step-000000005: attempt 2 was given up"
        ):
            late.save(step)
    assert hidden.is_dir()
    assert steps(tmp_path) == ["step-000000005", "step-000000010"]


def test_checkpoints_without_a_run_are_nobodys_to_a_run_and_never_removed(tmp_path, of_run):
    made(tmp_path)[2].save(7)
    saver = of_run("b-2", tmp_path, keep=1)[2]
    assert saver.restore() == 0
    saver.save(1)
    saver.save(2)
    assert steps(tmp_path) == ["step-000000002", "step-000000007"]


def test_two_runs_that_save_the_same_step_at_once_both_keep_theirs(tmp_path, of_run):
    one, _, first = of_run("a-1", tmp_path)
    two, _, second = of_run("b-2", tmp_path)
    save_rank = first._save_rank

    def slow(path):
        save_rank(path)
        second.save(10)

    for model, value in ((one, 1.0), (two, 2.0)):
        with torch.no_grad():
            model.weight.fill_(value)
    first._save_rank = slow
    first.save(10)
    assert steps(tmp_path) == ["step-000000010", "step-000000010-a-1"]
    for run, value in (("a-1", 1.0), ("b-2", 2.0)):
        fresh, _, saver = of_run(run, tmp_path)
        assert saver.restore() == 11
        assert fresh.weight.flatten()[0].item() == value


def test_a_run_restores_another_ones_checkpoint_when_it_was_told_to(tmp_path, of_run, monkeypatch):
    other = of_run("a-1", tmp_path)[2]
    chosen = [other.save(step) for step in (5, 6, 7)][1]
    monkeypatch.setenv("CORDEE_RESUME_FROM", chosen)
    assert of_run("b-2", tmp_path / "elsewhere")[2].restore() == 7
    saver = of_run("b-2", tmp_path)[2]
    assert saver.restore() == 7
    saver.save(8)
    assert of_run("b-2", tmp_path)[2].restore() == 9


def test_outside_a_run_a_script_that_does_not_restore_leaves_what_is_there(tmp_path):
    first = made(tmp_path)[2]
    first.save(100)
    first.save(200)
    second = made(tmp_path, keep=1)[2]
    assert os.path.basename(second.save(100)).startswith("step-000000100-")
    second.save(1)
    assert steps(tmp_path) == ["step-000000001", "step-000000100", "step-000000200"]
    assert made(tmp_path)[2].restore() == 201


def test_a_flipped_bit_is_named_and_told_to_the_run_and_the_one_before_is_restored(tmp_path, of_run, monkeypatch):
    create_channel(tmp_path / "1-0.channel")
    monkeypatch.setattr(client_rank, "writer", ChannelWriter(tmp_path / "1-0.channel"))
    monkeypatch.setattr(client_rank, "opened", True)
    saver = of_run("a-1", tmp_path / "saved")[2]
    saver.save(1)
    newest = saver.save(2)
    data = Path(newest, "__0_0.distcp")
    content = bytearray(data.read_bytes())
    content[len(content) // 2] ^= 4
    data.write_bytes(content)
    with pytest.warns(UserWarning, match="__0_0.distcp is damaged"):
        assert of_run("a-1", tmp_path / "saved")[2].restore() == 2
    reader = ChannelReader(tmp_path / "1-0.channel")
    reader.read()
    *saved, damage = [fact for _, fact in reader.told()]
    assert saved == [CheckpointFact(1), CheckpointFact(2)]
    text = damage.text
    assert f"{newest} is not used: ValueError: __0_0.distcp is damaged" in text
    assert "step 1 was restored from" in text
    client_rank.writer.close()
    reader.close()


class Planted:
    """Makes a folder when it is unpickled."""

    def __init__(self, proof):
        self._proof = str(proof)

    def __reduce__(self):
        return os.mkdir, (self._proof,)


def unsigned(folder):
    """Take the check sums and sizes of a checkpoint's files for what they are now."""
    manifest = read_manifest(folder)
    del manifest["crc32"]
    manifest["files"] = {name: os.path.getsize(os.path.join(folder, name)) for name in manifest["files"]}
    Path(folder, MANIFEST).write_text(json.dumps(manifest))


def test_code_in_the_description_of_a_checkpoint_is_refused_by_name(tmp_path):
    folder = made(tmp_path / "saved")[2].save(1)
    Path(folder, ".metadata").write_bytes(pickle.dumps(Planted(tmp_path / "proof")))
    unsigned(folder)
    with (
        pytest.warns(UserWarning, match="cannot be loaded"),
        pytest.raises(CheckpointError, match=r"it names posix.mkdir, which no checkpoint needs"),
    ):
        made(tmp_path / "saved")[2].restore()
    assert not (tmp_path / "proof").exists()


def test_code_among_the_data_of_a_checkpoint_is_refused(tmp_path):
    import torch.distributed.checkpoint as dcp

    _, _, saver = made(tmp_path / "saved")
    folder = saver.save(1)
    os.unlink(os.path.join(folder, "rank-0.pt"))
    state = saver._state()
    state["optimizer"]["param_groups"] = [{**state["optimizer"]["param_groups"][0], "lr": Planted(tmp_path / "proof")}]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.save(state, checkpoint_id=folder)
    torch.save({"random": {}, "positions": {}}, os.path.join(folder, "rank-0.pt"))
    unsigned(folder)
    with (
        pytest.warns(UserWarning, match="cannot be loaded"),
        pytest.raises(CheckpointError, match="no checkpoint can be loaded"),
    ):
        made(tmp_path / "saved")[2].restore()
    assert not (tmp_path / "proof").exists()


def test_learning_rates_of_numpy_come_back(tmp_path):
    import numpy

    _, optimizer, saver = made(tmp_path)
    optimizer.param_groups[0]["lr"] = numpy.float64(0.25)
    saver.save(1)
    _, fresh, again = made(tmp_path)
    assert again.restore() == 2
    assert fresh.param_groups[0]["lr"] == 0.25


def test_due_follows_steps_or_the_clock(tmp_path):
    by_steps = made(tmp_path, every_steps=3)[2]
    assert [by_steps.due(step) for step in range(6)] == [False, False, True, False, False, True]
    by_clock = made(tmp_path, every_s=0.0001)[2]
    time.sleep(0.001)
    assert by_clock.due(0) is True
    assert made(tmp_path)[2].due(0) is False


# For each line that it reads, another process that saves until it is killed; torch is imported once for all.
WRITERS = """
import os, signal, sys, torch, torch._dynamo, torch.distributed.checkpoint.state_dict, cordee
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


@pytest.mark.usefixtures("real")
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


@pytest.mark.usefixtures("real")
@pytest.mark.gate
def test_a_training_killed_and_resumed_ends_bit_identical(tmp_path):
    command = [sys.executable, "-c", TRAINING, str(tmp_path)]
    done = subprocess.run(
        command,
        input=f"{tmp_path}/a\n{tmp_path}/b 17\n{tmp_path}/b\n",
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    first, second, ended, killed, third, fourth, resumed = done.stdout.splitlines()
    assert (ended, killed, resumed) == ("ended 0", f"ended {signal.SIGKILL}", "ended 0"), done.stderr
    assert {line.split()[0] for line in (first, second)} == {"0"}
    assert {line.split()[0] for line in (third, fourth)} == {"16"}
    assert len({line.split()[1] for line in (first, second, third, fourth)}) == 1
