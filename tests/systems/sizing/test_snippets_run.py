"""Code that is printed for a layout runs: FSDP2 and DDP with Gloo ranks, accelerate's file in accelerate's own reader."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from accelerate.commands.config.config_args import load_config_from_file

from cordee.systems.sizing.architecture import Architecture
from cordee.systems.sizing.parallelism import Layout
from cordee.systems.sizing.snippets import snippet
from cordee.systems.sizing.workload import Workload
from cordee.wire.ports import pick_port

pytestmark = pytest.mark.usefixtures("real")

RANK = """
import torch
import torch.distributed as dist
from torch import nn
from parallel import parallel


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(16, 16), nn.ReLU()) for _ in range(3))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


dist.init_process_group("gloo")
net = parallel(Net(), "cpu")
steps = torch.optim.AdamW(net.parameters())
net(torch.ones(4, 16)).square().mean().backward()
steps.step()
held = sum((p.to_local() if hasattr(p, "to_local") else p).numel() for p in net.parameters())
print(f"rank {dist.get_rank()} holds {held} of {3 * (16 * 16 + 16)}")
dist.destroy_process_group()
"""


# PyTorch is imported once, by the parent of all ranks.
RANKS = """
import os
import runpy
import sys
import traceback

import torch.distributed.fsdp
import torch.distributed.pipelining

children = []
for rank in range(int(os.environ["WORLD_SIZE"])):
    children.append(os.fork())
    if not children[-1]:
        os.environ["RANK"] = os.environ["LOCAL_RANK"] = str(rank)
        try:
            runpy.run_path("rank.py", run_name="__main__")
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        sys.stdout.flush()
        os._exit(0)
sys.exit(any([os.waitpid(child, 0)[1] for child in children]))
"""


def ran(folder: Path, program: str, world: int) -> str:
    """Return what so many ranks print that run a program."""
    (folder / "rank.py").write_text(program)
    (folder / "ranks.py").write_text(RANKS)
    about = {"WORLD_SIZE": world, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": pick_port("127.0.0.1")}
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(folder)}
    env |= {name: str(value) for name, value in about.items()}
    command = [sys.executable, "ranks.py"]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("layout", "held"), [(Layout(fsdp=2), 408), (Layout(dp=2), 816)], ids=lambda one: getattr(one, "name", str(one))
)
def test_code_for_a_layout_trains_on_two_ranks_and_divides_what_it_says(tmp_path, layout, held):
    (tmp_path / "parallel.py").write_text(snippet("fsdp2", layout, Workload(checkpointing="full")))
    outputs = ran(tmp_path, RANK, 2)
    assert outputs.count(f"holds {held} of 816") == 2, outputs


# What a step of the pipeline leaves in its layers' gradients, against the model as it is with the same batch.
PIPELINE = """
import torch
import torch.distributed as dist
from torch import nn
from parallel import LAYERS, parallel


def net():
    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Linear(16, 16), nn.Tanh()) for _ in range(sum(LAYERS))]
    return layers, nn.Linear(8, 16), nn.Linear(16, 4)


dist.init_process_group("gloo")
rank, loss = dist.get_rank(), nn.MSELoss()
layers, first, last = net()
step, modules = parallel(layers, first, last, loss, "cpu")
stages, parts = STAGES[rank], len(LAYERS)
torch.manual_seed(1)
inputs, targets = torch.randn(8, 8), torch.randn(8, 4)
half = slice(rank % REPLICAS * 8 // REPLICAS, (rank % REPLICAS + 1) * 8 // REPLICAS)  # each replica has its part of the batch
ends = {"target": targets[half], "losses": []} if parts - 1 in stages else {}
step(*([inputs[half]] if 0 in stages else []), **ends)
plain_layers, plain_first, plain_last = net()
whole = nn.Sequential(plain_first, *plain_layers, plain_last)
loss(whole(inputs), targets).backward()
known = dict(whole.named_parameters())
count = 0
for number, module in zip(stages, modules):
    begin = sum(LAYERS[:number]) + (number > 0)
    for name, one in module.named_parameters():
        place, _, rest = name.partition(".")
        other = known[f"{int(place) + begin}.{rest}"].grad
        torch.testing.assert_close(one.grad, other, rtol=1e-4, atol=1e-6)
        count += 1
assert count == 2 * (sum(LAYERS[number] for number in stages) + (0 in stages) + (parts - 1 in stages))
print(f"rank {rank}: {count} gradients of stages {stages} are those of the model")
dist.destroy_process_group()
"""
SMALL = Architecture("small", layers=6, width=16, heads=2, kv_heads=2, head_width=8, ffn=16, vocabulary=8)


@pytest.mark.parametrize(
    ("layout", "stages"),
    [
        (Layout(pp=2), ((0,), (1,))),
        (Layout(pp=2, schedule="zb-h1"), ((0,), (1,))),
        (Layout(pp=2, dp=2, schedule="zb-v"), ((0, 3), (0, 3), (1, 2), (1, 2))),
    ],
    ids=lambda one: getattr(one, "name", ""),
)
def test_a_pipelines_code_trains_as_the_model_does(tmp_path, layout, stages):
    work = Workload(precision="fp32", batch=4 * layout.dp)
    (tmp_path / "parallel.py").write_text(snippet("fsdp2", layout, work, SMALL))
    outputs = ran(tmp_path, f"STAGES, REPLICAS = {stages}, {layout.dp}\n{PIPELINE}", layout.gpus)
    assert outputs.count("are those of the model") == layout.gpus, outputs


def test_a_pipelines_code_deals_out_all_layers_and_needs_to_know_them():
    layout, space = Layout(pp=2, interleaved=3), {}
    exec(snippet("fsdp2", layout, Workload(), SMALL), space)
    assert sum(space["LAYERS"]) == SMALL.layers
    assert len(space["LAYERS"]) == 6
    assert snippet("fsdp2", layout, Workload()).startswith("# No code")
    for other in ({"tp": 2}, {"fsdp": 2}, {"dp": 2, "zero": 1}):
        assert snippet("fsdp2", Layout(pp=2, **other), Workload(), SMALL).startswith("# No code")


@pytest.mark.parametrize(
    "layout", [Layout(), Layout(dp=4), Layout(fsdp=4), Layout(dp=4, zero=2)], ids=lambda one: one.name
)
def test_accelerates_file_has_the_processes_of_the_layout(tmp_path, layout):
    path = Path(tmp_path) / "accelerate.yaml"
    path.write_text(snippet("accelerate", layout, Workload()))
    found = yaml.safe_load(path.read_text())
    assert found["num_processes"] == layout.gpus
    read = load_config_from_file(str(path))
    assert read.num_processes == layout.gpus
    assert read.mixed_precision == "bf16"
