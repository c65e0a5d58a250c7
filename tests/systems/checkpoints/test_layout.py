"""Saves of the same shape only copy: whatever tensors are like, what is read back is what was there, and another shape is planned anew."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings

import pytest

import cordee


@pytest.fixture(scope="module", autouse=True)
def _torch():
    global dcp, nn, torch
    import torch
    import torch.distributed.checkpoint as dcp
    from torch import nn


@pytest.fixture
def planned(monkeypatch):
    """Return the list of saves that PyTorch has planned."""
    done, save = [], dcp.save

    def counted(*given, **named):
        done.append(None)
        return save(*given, **named)

    monkeypatch.setattr(dcp, "save", counted)
    return done


@pytest.fixture
def training(tmp_path):
    """Return a function that makes a model of odd tensors, its optimizer and a saver that is closed at the end."""
    savers = []

    def make():
        model = nn.Module()
        model.plain = nn.Linear(16, 8)
        model.turned = nn.Parameter(torch.randn(3, 5).t())
        model.small = nn.Parameter(torch.randn(7, 3).to(torch.bfloat16))
        model.bits = nn.Parameter(torch.zeros(6, dtype=torch.bool), requires_grad=False)
        model.register_buffer("part", torch.arange(10.0)[2:5])
        model.register_buffer("steps", torch.arange(10.0).reshape(2, 5)[:, ::2])
        model.register_buffer("nothing", torch.zeros(0, 4))
        model.register_buffer("one", torch.tensor(3))
        model.tied = nn.Linear(16, 8)
        model.tied.weight = model.plain.weight
        optimizer = torch.optim.AdamW([one for one in model.parameters() if one.requires_grad])
        saver = cordee.checkpointer(model, optimizer, folder=tmp_path, asynchronous=True, pace="off")
        savers.append(saver)
        return model, optimizer, saver

    yield make
    for saver in savers:
        saver._background.close()


def stepped(model, optimizer, rate=1e-3):
    optimizer.param_groups[0]["lr"] = rate
    for parameter in optimizer.param_groups[0]["params"]:
        parameter.grad = torch.randn_like(parameter)
    optimizer.step()
    with torch.no_grad():
        model.bits.logical_not_()
        model.part.add_(1.0)
        model.steps.mul_(2.0)
        model.one.add_(1)


def contents(model, optimizer):
    state = {**model.state_dict(), "lr": torch.tensor(optimizer.param_groups[0]["lr"], dtype=torch.float64)}
    for number, values in optimizer.state_dict()["state"].items():
        state.update({f"{number}.{name}": value for name, value in values.items()})
    return {name: value.clone() for name, value in state.items()}


def saved(saver, step):
    saver.save(step)
    saver.wait()


def test_the_second_save_copies_what_tensors_of_any_kind_hold_and_is_planned_no_more(training, planned):
    model, optimizer, saver = training()
    for step, rate in ((1, 1e-3), (2, 0.0012345678901), (3, 7.0)):
        stepped(model, optimizer, rate)
        expected = contents(model, optimizer)
        saved(saver, step)
        again, its, other = training()
        stepped(again, its)
        assert other.restore() == step + 1
        found = contents(again, its)
        assert found.keys() == expected.keys()
        assert [name for name in expected if not torch.equal(found[name], expected[name])] == []
    assert len(planned) == 1


def test_pytorch_alone_reads_what_was_copied(tmp_path, training, planned):
    model, optimizer, saver = training()
    for step in (1, 2):
        stepped(model, optimizer)
        saved(saver, step)
    expected = {name: value.clone() for name, value in model.state_dict().items()}
    state = {"model": {name: torch.zeros_like(value) for name, value in expected.items()}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.load(state, checkpoint_id=tmp_path / "step-000000002")
    assert all(torch.equal(state["model"][name], value) for name, value in expected.items())


@pytest.mark.parametrize("change", ["one more", "another size", "other strides", "another type", "a longer value"])
def test_another_shape_is_planned_anew_and_comes_back(tmp_path, planned, change):
    model, optimizer = nn.Linear(4, 4), None
    model.register_buffer("changes", torch.randn(3, 5))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    saver = cordee.checkpointer(model, optimizer, folder=tmp_path, asynchronous=True, pace="off")
    saved(saver, 1)
    saved(saver, 2)
    assert len(planned) == 1
    if change == "one more":
        model.register_buffer("more", torch.randn(9))
    elif change == "another size":
        model.changes = torch.randn(30, 50)
    elif change == "other strides":
        model.changes = torch.randn(5, 3).t()
    elif change == "another type":
        model.changes = torch.randn(3, 5).to(torch.float64)
    else:
        optimizer.param_groups[0]["note"] = "n" * 999
    for step in (3, 4):
        model.changes.add_(1.0)
        saved(saver, step)
    assert len(planned) == 2
    again = nn.Linear(4, 4)
    for name, value in model.named_buffers():
        again.register_buffer(name, torch.zeros_like(value))
    its = torch.optim.SGD(again.parameters(), lr=0.2)
    assert cordee.checkpointer(again, its, folder=tmp_path).restore() == 5
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in model.state_dict().items())
    assert its.param_groups[0]["lr"] == 0.1


SHARDED = """
import json, os, sys
import torch, torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
import cordee
folder, rank = sys.argv[1], int(os.environ["RANK"])
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method=f"file://{folder}.store", rank=rank, world_size=2)
mesh = dist.init_device_mesh("cpu", (2,))
def made(seed):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Linear(7, 3))
    model = fully_shard(model, mesh=mesh)
    return model, torch.optim.AdamW(model.parameters(), lr=0.01)
def trained(model, optimizer, seed):
    torch.manual_seed(seed)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter) * seed
    optimizer.step()
import torch.distributed.checkpoint as dcp
planned, plan = [], dcp.save
dcp.save = lambda *given, **named: (planned.append(None), plan(*given, **named))[1]
model, optimizer = made(1)
saver = cordee.checkpointer(model, optimizer, folder=folder, asynchronous=True, pace="off")
for step in (1, 2, 3):
    trained(model, optimizer, step)
    saver.save(step)
    with torch.no_grad():  # what comes after the copy is not in it
        kept = [parameter.to_local().clone() for parameter in model.parameters()]
    saver.wait()
again, its = made(9)
trained(again, its, 9)
assert cordee.checkpointer(again, its, folder=folder).restore() == 4
assert all(torch.equal(a, b.to_local()) for a, b in zip(kept, again.parameters()))
for mine, other in zip(optimizer.state.values(), its.state.values()):
    assert torch.equal(mine["exp_avg"].to_local(), other["exp_avg"].to_local())
torch.manual_seed(8)
split = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Linear(7, 3))
split = parallelize_module(split, mesh, {"0": ColwiseParallel(), "1": RowwiseParallel()})
its = torch.optim.AdamW(split.parameters(), lr=0.01)
trained(split, its, 8)
assert cordee.checkpointer(split, its, folder=folder).restore() == 4
for one, other in zip(model.parameters(), split.parameters()):
    assert torch.equal(one.full_tensor(), other.full_tensor())
whole = [parameter.full_tensor().tolist() for parameter in model.parameters()]
if rank == 0:
    with open(folder + ".json", "w") as file:
        json.dump(whole, file)
print(f"planned {len(planned)}")
dist.destroy_process_group()
"""


@pytest.mark.usefixtures("real")
def test_ranks_that_share_the_state_out_copy_their_shards_which_any_other_layout_restores(tmp_path):
    ranks = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", SHARDED, str(tmp_path / "saved")],
            env={**os.environ, "RANK": str(rank), "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    assert [rank.communicate()[0] for rank in ranks] == ["planned 1\n"] * 2
    assert [rank.returncode for rank in ranks] == [0, 0]
    alone = nn.Sequential(nn.Linear(5, 7), nn.Linear(7, 3))
    with pytest.warns(UserWarning, match="saved by 2 ranks, restored by 1"):
        assert cordee.checkpointer(alone, folder=tmp_path / "saved").restore() == 4
    expected = json.loads((tmp_path / "saved.json").read_text())
    assert [parameter.tolist() for parameter in alone.parameters()] == expected


def test_memory_is_touched_before_the_first_save_and_only_where_there_is_enough(tmp_path, training, monkeypatch):
    model, optimizer, saver = training()
    stepped(model, optimizer)
    saver.due(0)
    memory = saver._background._memory
    memory._toucher.join()
    used = os.fstat(memory.descriptor).st_blocks * 512
    needed = sum(
        value.nbytes for name, value in contents(model, optimizer).items() if name not in ("lr", "tied.weight")
    )
    assert used >= needed
    saved(saver, 1)
    assert training()[2].restore() == 2
    monkeypatch.setattr(type(memory), "lacks", lambda self, size: "none is free")
    other = training()[2]
    other.due(0)
    assert other._background._memory.size == 4096
