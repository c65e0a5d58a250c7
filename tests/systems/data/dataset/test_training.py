"""A training with real ranks and checkpoints over packed shards, killed and gone on with by another number of ranks."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path

import numpy
import pytest

import cordee
from cordee.core.errors import CorruptDataError, UsageError
from cordee.systems.data.node.read.order.position import SampleOrder

# Torch is imported once, then every rank is a fork. Each writes what it was given before its step can be saved.
TRAINING = """
import json, os, signal, sys
import torch, torch.distributed as dist
import torch.distributed.checkpoint.state_dict, torch.distributed.checkpoint, torch.utils.data
from torch import nn
import cordee
torch.set_num_threads(1)

def rank_of(rank, world, folder, kill_at, workers):
    dist.init_process_group("gloo", init_method=f"file://{folder}/store-{world}", rank=rank, world_size=world)
    model = nn.parallel.DistributedDataParallel(nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
    ds = cordee.dataset("corpus", batch=29, seed=6, decode={"txt": int})
    saver = cordee.checkpointer(model, optimizer, data=ds, folder=f"{folder}/checkpoints", every_steps=2, keep=2)
    step = saver.restore()
    with open(f"{folder}/given-{world}-{rank}.jsonl", "a", buffering=1) as said:
        while ds.epoch < 2:
            for batch in ds.loader(workers=workers):
                if step == kill_at and rank == 1:
                    os.kill(os.getpid(), signal.SIGKILL)
                assert batch["txt"].tolist() == batch["label"].tolist()
                model(batch["label"].float()[:, None]).mean().backward()
                optimizer.step()
                said.write(json.dumps([step, batch["label"].tolist()]) + "\\n")
                if saver.due(step):
                    saver.save(step)
                step += 1
    dist.destroy_process_group()

folder = sys.argv[1]
for world, kill_at, workers in [(4, 5, 0), (2, 9, 1), (3, -1, 0)]:
    ranks = {}
    for rank in range(world):
        pid = os.fork()
        if not pid:
            rank_of(rank, world, folder, kill_at, workers)
            os._exit(0)
        ranks[pid] = rank
    codes = {}
    while ranks:
        pid, status = os.wait()
        codes[ranks.pop(pid)] = status
        if status:
            for other in ranks:
                os.kill(other, signal.SIGKILL)
    print(world, "killed" if codes[1] == signal.SIGKILL else list(codes.values()), flush=True)
"""


@pytest.mark.campaign
@pytest.mark.usefixtures("real")
@pytest.mark.gate
def test_a_killed_training_goes_on_with_other_ranks_and_trains_on_every_sample_once(tmp_path, packed, monkeypatch):
    monkeypatch.setenv("CORDEE_DATA_CORPUS", str(packed))
    (tmp_path / "train.py").write_text(TRAINING)
    command = [sys.executable, str(tmp_path / "train.py"), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=150, check=False)
    assert done.stdout.splitlines() == ["4 killed", "2 killed", "3 [0, 0, 0]"], done.stderr
    history = kept_history(tmp_path, [4, 2, 3])
    order = SampleOrder(203, seed=6)
    assert history == order.samples(numpy.arange(2 * 203)).tolist()


def kept_history(folder: Path, worlds: list[int]) -> list[int]:
    """Return what was trained on, in order: of every attempt the steps before the one that the next began with."""
    attempts = []
    for world in worlds:
        steps: dict[int, list[int]] = {}
        for rank in range(world):
            for line in (folder / f"given-{world}-{rank}.jsonl").read_text().splitlines():
                step, labels = json.loads(line)
                steps.setdefault(step, []).extend(labels)
        attempts.append(steps)
    begins = [min(steps) for steps in attempts[1:]] + [sys.maxsize]
    return [
        label
        for steps, until in zip(attempts, begins, strict=True)
        for step in sorted(steps)
        if step < until
        for label in steps[step]
    ]


def test_shards_are_read_through_a_name_of_the_job(packed, monkeypatch):
    monkeypatch.setenv("CORDEE_DATA_MY_CORPUS", str(packed))
    ds = cordee.dataset("my-corpus", batch=20, fields=["txt"], keys=True)
    batches = list(ds)
    samples = {key: data for batch in batches for key, data in zip(batch["key"], batch["txt"], strict=True)}
    assert samples == {f"s{number:05d}": b"%d" % number for number in range(203)}
    assert (ds.name, ds.classes) == ("my-corpus", ())
    assert ds.state_dict()["identity"] == ds.source.identity


def test_an_argument_that_the_data_set_does_not_take_is_named(packed):
    with pytest.raises(UsageError, match="length"):
        cordee.dataset(packed, batch=20, length=5)


def test_a_damaged_sample_of_a_shard_is_named_or_left_out(packed):
    shard = packed / "corpus-000002.tar"
    data = shard.read_bytes()
    at = data.index(b"s00085.txt") + 512
    assert data[at : at + 2] == b"85"
    shard.write_bytes(data[:at] + b"x5" + data[at + 2 :])
    settings = {"batch": 50, "shuffle": False, "decode": {"txt": int}}
    with pytest.raises(CorruptDataError, match="damaged") as caught:
        list(cordee.dataset(packed, **settings))
    assert "s00085" in caught.value.given
    assert "corpus-000002.tar" in caught.value.given
    ds = cordee.dataset(packed, corrupt="skip", **settings)
    with pytest.warns(RuntimeWarning, match="s00085"):
        batches = [batch["txt"].tolist() for batch in ds]
    assert [label for batch in batches for label in batch] == [number for number in range(203) if number != 85]
    assert [len(batch) for batch in batches] == [50, 49, 50, 50, 3]
    assert ds.counts.skipped == 1
    with pytest.raises(CorruptDataError):
        list(cordee.dataset(packed, batch=50, check="always"))


def test_a_data_set_can_be_sent_to_another_process_with_its_position(packed):
    ds = cordee.dataset(packed, batch=50, seed=3)
    next(iter(ds))
    other = pickle.loads(pickle.dumps(ds))
    assert other.state_dict() == ds.state_dict()
    assert [batch["txt"] for batch in other] == [batch["txt"] for batch in ds]
