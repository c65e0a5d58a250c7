"""A child counts what a step allocates; what it may not do, and what ends it."""

from __future__ import annotations

import os
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cordee.systems.sizing.cache import digest_of, keep_trace, known_trace
from cordee.systems.sizing.cli import command
from cordee.systems.sizing.parallelism import Layout
from cordee.systems.sizing.trace.run import TraceError, trace
from cordee.systems.sizing.traced import TracedModel
from cordee.systems.sizing.workload import Workload

pytestmark = pytest.mark.usefixtures("real")

PLAIN = Workload(precision="fp32")
MODEL = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, blocks):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(512, 512, bias=False) for _ in range(blocks))

    def forward(self, x):
        for block in self.blocks:
            x = block(x).relu()
        return x.mean()


def make():
    return Net(4), torch.ones(64, 512)


def deep():
    return Net(40), torch.ones(64, 512)


def nothing():
    return 7
"""
SCRIPT = """
import os
from model import Net
import torch

device = "cuda" if torch.cuda.is_available() else "cpu"
net = Net(4).to(device)
step = torch.optim.AdamW(net.parameters())
os.makedirs("out", exist_ok=True)
rows = torch.utils.data.TensorDataset(torch.randn(256, 512))
while True:
    for (x,) in torch.utils.data.DataLoader(rows, batch_size=64, num_workers=4, pin_memory=True):
        with torch.autocast(device, dtype=torch.bfloat16):
            loss = net(x.to(device))
        loss.backward()
        step.step()
        step.zero_grad()
        print(f"loss {loss.item():.3f}")
        torch.save(net.state_dict(), "out/net.pt")
        with open("log.txt", "a") as file:
            file.write("x")
"""
STATES = 4 * 512 * 512 * 4


def traced(folder: Path, source: str, function: str = "", gpu: bool = True, **limits: Any) -> TracedModel:
    """Return the trace of a source beside the model."""
    (folder / "model.py").write_text(MODEL)
    (folder / "it.py").write_text(textwrap.dedent(source))
    return trace(folder / "it.py", function, (), PLAIN, python=sys.executable, folder=folder, gpu=gpu, **limits)


@pytest.mark.gate
def test_a_function_is_counted_to_the_byte(tmp_path):
    found = traced(tmp_path, MODEL, "make")
    assert (found.parameters, found.gradients) == (STATES, STATES)
    assert found.optimizer == pytest.approx(2 * STATES, rel=1e-3)
    # foreach, as on GPUs, copies all parameters in its step; the batch is still held.
    assert found.step == pytest.approx(STATES + 64 * 512 * 4, rel=1e-3)
    assert (found.batch, found.optimizer_name, found.extrapolated) == (64, "AdamW", False)
    assert found.line.startswith("it.py:")


CLONED = """
import copy, torch

def made(layers):
    return torch.nn.Sequential(*layers), torch.ones(8, 16, 64)

def apart():
    return made([torch.nn.TransformerEncoderLayer(64, 4, 128, 0.0, batch_first=True) for _ in range(3)])

def cloned():
    first = torch.nn.TransformerEncoderLayer(64, 4, 128, 0.0, batch_first=True)
    return made([copy.deepcopy(first) for _ in range(3)])
"""


def test_layers_that_are_copies_of_one_take_what_others_take(tmp_path):
    apart, cloned = (traced(tmp_path, CLONED, name, gpu=False) for name in ("apart", "cloned"))
    assert cloned.peak == apart.peak
    assert cloned.parameters == apart.parameters


def test_a_script_runs_as_it_is_until_its_second_step_and_changes_nothing(tmp_path):
    found = traced(tmp_path, SCRIPT)
    assert found.parameters == STATES
    assert found.name == "Net"
    assert sorted(os.listdir(tmp_path)) == ["it.py", "model.py"]


def test_a_deep_model_is_extrapolated_from_two_depths_without_an_error(tmp_path):
    found = traced(tmp_path, MODEL, "deep")
    assert found.extrapolated
    assert found.parameters == 10 * STATES
    assert found.optimizer == pytest.approx(20 * STATES, rel=1e-3)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("import torch\nopen('nowhere.bin')\n", "FileNotFoundError"),
        ("import os\nos.system('true')\n", "starts or ends a process"),
        ("import os\nif os.fork() == 0: os._exit(0)\n", "starts or ends a process"),
        ("print('nothing to train')\n", "no module with parameters was called"),
        ("import nowhere_to_be_found\n", "ModuleNotFoundError"),
        ("raise SystemExit(3)\n", "ended with 3"),
        ("import os\nos._exit(3)\n", "ended without an answer"),
    ],
)
def test_what_cannot_be_traced_says_why_and_what_to_do(tmp_path, source, said):
    with pytest.raises(TraceError) as error:
        traced(tmp_path, source)
    assert said in error.value.text
    assert error.value.next


def test_a_function_that_returns_no_model_or_is_not_there_says_so(tmp_path):
    for function, said in (("nothing", "no torch.nn.Module"), ("other", "there are Net, deep, make, nothing")):
        with pytest.raises(TraceError) as error:
            traced(tmp_path, MODEL, function)
        assert said in error.value.text


def test_a_script_that_never_ends_is_ended(tmp_path):
    began = time.monotonic()
    with pytest.raises(TraceError) as error:
        traced(tmp_path, "while True: pass\n", limit_s=8.0)
    assert "more than 8 s" in error.value.text
    assert time.monotonic() - began < 20


def test_a_script_that_takes_real_memory_is_stopped(tmp_path):
    with pytest.raises(TraceError) as error:
        traced(tmp_path, "held = bytearray(3 << 30)\n", limit_bytes=2 << 30)
    assert "MemoryError" in error.value.text


def test_what_was_traced_is_known_until_something_changes(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "it.py").write_text("from model import Net\n")

    def digest(argv: tuple[str, ...] = ()) -> str:
        return digest_of(tmp_path / "it.py", "", argv, PLAIN, sys.executable, tmp_path, True)

    first = digest()
    model = TracedModel("a", 1, 1, 2, 0, 9, 1, 13, 5, 1, modules=(("Linear", 4),))
    keep_trace(first, model)
    assert known_trace(first) == model
    assert digest(("--lr", "1")) != first
    (tmp_path / "model.py").write_text(MODEL + "\n")
    assert digest() != first
    assert known_trace(digest()) is None


def test_a_traced_model_is_divided_by_fsdp_and_not_by_tp():
    model = TracedModel("a", 800, 800, 1600, 0, 90, 800, 3290, 4000, 100)
    assert model.parts(PLAIN, Layout(fsdp=8)).optimizer == 200
    assert "config.json" in model.refusal(Layout(tp=2))
    assert not model.refusal(Layout(fsdp=8))


def test_the_command_traces_a_function(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "model.py").write_text(MODEL)
    done = CliRunner().invoke(command, [f"{tmp_path}/model.py:make", "--gpu", "l4", "--precision", "fp32", "--explain"])
    assert done.exit_code == 0, done.output
    assert "traced" in done.output
    assert "most of it is made at model.py:" in done.output
