"""Scripts as people write them are traced: loops of GPUs, wrappers of ranks, several optimizers, rows chosen by values."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest

from cordee.core.errors import UsageError
from cordee.systems.sizing.parallelism import Layout
from cordee.systems.sizing.target import plan_target
from cordee.systems.sizing.trace.run import trace
from cordee.systems.sizing.traced import TracedModel
from cordee.systems.sizing.workload import Workload

pytestmark = pytest.mark.usefixtures("real")

PLAIN = Workload(precision="fp32")
GUARD = Path(trace.__code__.co_filename).with_name("guard.py")
LOOP = """
import numpy as np, torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

torch.distributed.init_process_group("nccl")
torch.cuda.set_device(0)
assert torch.cuda.get_device_properties(0).total_memory > 0
assert not torch.cuda.is_current_stream_capturing()
rows = np.zeros(4096, dtype=np.uint16)

def batch():
    picked = torch.randint(len(rows) - 64, (8,))
    made = torch.stack([torch.from_numpy(rows[i : i + 64].astype(np.int64)) for i in picked])
    return made.pin_memory().to("cuda:0", non_blocking=True)

class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inside = torch.nn.Linear(32, 32)

    def forward(self, x):
        mixed = torch.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True)
        return x + self.inside(mixed).relu()

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.block = torch.nn.Embedding(100, 32), Block()

    def forward(self, ids):
        return checkpoint(self.block, self.words(ids)[:, None], use_reentrant=False)

net = DistributedDataParallel(torch.compile(Net().to(0)), device_ids=[0])
steps = torch.optim.AdamW(net.parameters(), fused=True)
scaler, began = torch.amp.GradScaler("cuda"), torch.cuda.Event(enable_timing=True)
with torch.cuda.stream(torch.cuda.Stream()):
    began.record()
for number in range(10):
    for micro in range(3):
        with torch.amp.autocast("cuda", dtype=torch.float16):
            loss = net(batch()).float().mean()
        if torch.isnan(loss):
            raise SystemExit("the loss is not a number")
        scaler.scale(loss).backward()
    scaler.unscale_(steps)
    torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    scaler.step(steps)
    scaler.update()
    steps.zero_grad()
    print(f"{loss:.3f}", loss.tolist(), torch.cuda.mem_get_info())
"""
DIVIDED = """
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

torch.distributed.init_process_group("nccl")
mesh = init_device_mesh("cuda", (torch.distributed.get_world_size(),))
net = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(4))).cuda()
for layer in net:
    fully_shard(layer, mesh=mesh, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16))
fully_shard(net, mesh=mesh)
net.set_requires_gradient_sync(True)
halves = [torch.optim.AdamW(net[:2].parameters()), torch.optim.SGD(net[2:].parameters(), lr=0.1)]
while True:
    net(torch.ones(16, 64, device="cuda")).sum().backward()
    for half in halves:
        half.step()
        half.zero_grad()
"""
FUNCTIONS = """
import torch

class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.inside = torch.nn.Linear(64, 64), torch.nn.Linear(64, 512)
        self.back = torch.nn.Linear(512, 64)

    def forward(self, x):
        return x + self.back(self.inside(self.q(x)).relu())

class Experts(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.router, self.experts = torch.nn.Linear(64, 4), torch.nn.ModuleList(torch.nn.Linear(64, 64) for _ in range(4))

    def forward(self, x):
        chosen, out = self.router(x).argmax(-1), torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            out[chosen == number] = expert(x[chosen == number])
        return out

def blocks():
    return torch.nn.Sequential(*(Block() for _ in range(6))), torch.ones(32, 128, 64)

def experts():
    return Experts(), torch.ones(64, 64)
"""

ENCODER = """
import torch

layer = torch.nn.TransformerEncoderLayer(2048, 16, 8192, batch_first=True, device="cuda", dtype=torch.bfloat16)
steps = torch.optim.AdamW(layer.parameters())
x = torch.randn(16, 1024, 2048, device="cuda", dtype=torch.bfloat16)
for _ in range(3):
    layer(x).float().square().mean().backward()
    steps.step()
    steps.zero_grad()
"""

LIGHTNING = """
import lightning, torch

class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(64, 8)

    def training_step(self, batch, index):
        loss = torch.nn.functional.cross_entropy(self.body(input=batch[0]), batch[1])
        self.log("loss", loss, prog_bar=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())

rows = torch.utils.data.TensorDataset(torch.randn(320, 64), torch.randint(0, 8, (320,)))
loader = torch.utils.data.DataLoader(rows, batch_size=32, num_workers=2)
trainer = lightning.Trainer(
    accelerator="gpu", devices=4, strategy="fsdp", precision="16-mixed", accumulate_grad_batches=2, gradient_clip_val=1.0
)
trainer.fit(Net(), loader)
"""


def traced(folder: Path, source: str, function: str = "", workload: Workload = PLAIN) -> TracedModel:
    """Return the trace of a source."""
    (folder / "it.py").write_text(textwrap.dedent(source))
    return trace(folder / "it.py", function, (), workload, python=sys.executable, folder=folder, gpu=True)


@pytest.mark.gate
def test_a_loop_for_gpus_with_ddp_scaler_accumulation_and_checkpointing_is_counted(tmp_path):
    found = traced(tmp_path, LOOP)
    count = 100 * 32 + 32 * 32 + 32
    assert (found.count, found.parameters) == (count, 4 * count)
    assert (found.batch, found.calls, found.strategy, found.optimizer_name) == (8, 3, "ddp", "AdamW")
    assert found.attention_flops > 0
    # Three micro-batches of 8 sequences of 64 tokens, forward, backward, and forward again.
    assert found.half_flops == pytest.approx(3 * 4 * 2 * 32 * 32 * 8 * 64, rel=0.01)


@pytest.mark.gate
def test_attention_inside_a_module_of_torch_is_that_of_a_flash_kernel(tmp_path):
    found = traced(tmp_path, ENCODER)
    # What an H200 held at most: benchmarks/results/2026-11-26-plan-on-h200.md.
    assert found.peak == pytest.approx(2_384_885_760, rel=0.1)


def test_a_script_without_a_document_is_planned_for_a_gpu_though_none_is_named(tmp_path):
    (tmp_path / "it.py").write_text(ENCODER)
    assert plan_target(str(tmp_path / "it.py"), None, {}).model.gpu


def test_a_script_that_divides_itself_is_planned_as_it_does_and_all_its_optimizers_count(tmp_path):
    found = traced(tmp_path, DIVIDED)
    assert found.strategy == "fsdp"
    assert found.optimizer == pytest.approx(2 * (64 * 64 + 64) * 8, rel=0.01)  # SGD without momentum holds nothing
    assert found.parts(PLAIN, Layout(fsdp=4)).parameters == found.parameters / 4


def test_a_trainer_of_lightning_is_traced_on_one_rank_and_divided_as_it_says(tmp_path):
    found = traced(tmp_path, LIGHTNING)
    assert (found.parameters, found.optimizer_name) == (4 * (64 * 8 + 8), "AdamW")
    assert (found.batch, found.calls, found.strategy) == (32, 2, "fsdp")  # the batch is told where it is given by name
    assert found.half_flops > 0
    assert not list(tmp_path.glob("lightning_logs*"))


def test_checkpointing_and_lora_of_a_function_change_what_is_traced(tmp_path):
    plain = traced(tmp_path, FUNCTIONS, "blocks")
    again = traced(tmp_path, FUNCTIONS, "blocks", replace(PLAIN, checkpointing="full"))
    lora = traced(tmp_path, FUNCTIONS, "blocks", replace(PLAIN, task="lora", precision="bf16", rank=4))
    assert again.activations < plain.activations / 2
    assert again.parameters == plain.parameters
    assert lora.gradients == lora.optimizer // 2 - 4 * 12 // 2 or lora.gradients == 6 * 4 * (64 + 64) * 4
    assert lora.parameters == pytest.approx(plain.parameters / 2 + lora.gradients, rel=0.01)


def test_rows_that_experts_choose_are_taken_to_be_even_shares(tmp_path):
    found = traced(tmp_path, FUNCTIONS, "experts")
    assert found.masked
    router = 2 * 64 * 64 * 4
    # Forward, and backward of weights; experts pass gradients on to the input no further than it has any.
    assert found.full_flops == pytest.approx(2 * (router + 2 * 64 * 64 * 64), rel=0.05)


def test_an_option_that_a_script_decides_by_itself_is_refused(tmp_path):
    (tmp_path / "it.py").write_text("")
    with pytest.raises(UsageError) as error:
        plan_target(str(tmp_path / "it.py"), None, {"checkpointing": "full"})
    assert error.value.given == "--checkpointing"


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("os.kill(os.getppid(), 0)", "refused"),
        ("sqlite3.connect(out)", "refused"),
        ("os.open(out, os.O_CREAT | os.O_WRONLY)", "refused"),
        ("open(out, 'w').write('x'); os.makedirs(out)", "went on"),
        ("subprocess.run(['true'])", "refused"),
        ("open(os.path.join(scratch, 'x'), 'w').write('x'); assert open(os.path.join(scratch, 'x')).read()", "went on"),
    ],
)
def test_nothing_outside_of_the_childs_own_folder_is_changed(tmp_path, source, said):
    (tmp_path / "scratch").mkdir()
    script = f"""
import importlib.util, os, sqlite3, subprocess, sys
spec = importlib.util.spec_from_file_location("guard", {str(GUARD)!r})
guard = importlib.util.module_from_spec(spec)
spec.loader.exec_module(guard)
out, scratch = {str(tmp_path / "out")!r}, {str(tmp_path / "scratch")!r}
guard.protect(scratch)
try:
    {source}
    print("went on")
except OSError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert said in done.stdout, done.stderr
    assert not (tmp_path / "out").exists()
