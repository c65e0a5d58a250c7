"""Code that is printed for a layout runs: FSDP2 and DDP with Gloo ranks, accelerate's file in accelerate's own reader."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from accelerate.commands.config.config_args import load_config_from_file

from cordee.systems.sizing.memory import Layout
from cordee.systems.sizing.snippets import snippet
from cordee.systems.sizing.workload import Workload

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


@pytest.mark.parametrize(
    ("layout", "held"), [(Layout(fsdp=2), 408), (Layout(dp=2), 816)], ids=lambda one: getattr(one, "name", str(one))
)
def test_code_for_a_layout_trains_on_two_ranks_and_divides_what_it_says(tmp_path, layout, held):
    (tmp_path / "rank.py").write_text(RANK)
    (tmp_path / "parallel.py").write_text(snippet("fsdp2", layout, Workload(checkpointing="full")))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ranks = []
    for rank in range(2):
        world = {"RANK": rank, "WORLD_SIZE": 2, "LOCAL_RANK": rank, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        env = {**os.environ, "OMP_NUM_THREADS": "1", **{name: str(value) for name, value in world.items()}}
        ranks.append(
            subprocess.Popen(
                [sys.executable, "rank.py"],
                cwd=tmp_path,
                env=env,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
    outputs = [rank.communicate(timeout=120)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], outputs
    assert all(f"holds {held} of 816" in output for output in outputs), outputs


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
