"""Workloads of a GPU where there is none: torch computes on the CPU, the driver and NVRTC are libraries that stand in."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cordee.systems.score.validation.conduct import environment
from support.cuda import build, build_compiler

# A torch whose `cuda` is the CPU, with the parts of torch.cuda that the workloads use. Work is done at once; waiting is free.
STAND_IN = """
import json, sys, time, types
from pathlib import Path
import torch
from cordee.systems.score.validation.programs import gpu
from cordee.systems.score.validation.programs.steady import Steady

class Event:
    def __init__(self, **options): self.at = 0.0
    def record(self): self.at = time.perf_counter()
    def synchronize(self): assert self.at
    def elapsed_time(self, other): return (other.at - self.at) * 1e3

class Torch:
    version = types.SimpleNamespace(cuda="12.8")
    cuda = types.SimpleNamespace(
        Event=Event, synchronize=lambda: None, mem_get_info=lambda: (2 << 20, 4 << 20),
        get_device_capability=lambda: (9, 0), current_stream=lambda: types.SimpleNamespace(cuda_stream=7),
    )
    def __getattr__(self, name):
        found = getattr(torch, name)
        if name not in ("ones", "zeros", "randn", "empty", "randperm"):
            return found
        return lambda *sizes, device=None, **more: found(*sizes, **more)

torch.Tensor.pin_memory = lambda self: self
for name, seconds, given in json.loads(sys.argv[1]):
    steady = Steady(seconds)
    print(json.dumps(["begin", name]), file=open(sys.argv[2], "a"))
    told = getattr(gpu, name)(Torch(), steady, **given)
    assert steady.elapsed_s >= seconds and steady.began_at
    print(json.dumps(told))
"""
CASES = {
    "quarter": ("hold", 0.05, {"share": 0.25}),
    "warps": ("hold", 0.05, {"warps": 64}),
    "fma64": ("fma", 0.05, {"bits": 64}),
    "chase": ("chase", 0.05, {"count": 4096}),
    "bursts": ("gemm", 0.3, {"size": 32, "duty": 0.5, "period_s": 0.02}),
    "gemm": ("gemm", 0.05, {"size": 32}),
    "triad": ("triad", 0.05, {}),
    "copies": ("copies", 0.05, {"size_bytes": 4096}),
    "tiny": ("tiny", 0.05, {}),
}


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cuda")
    build_compiler(folder)
    return build(folder)


@pytest.fixture(scope="module")
def ran(libraries: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[dict, list[list[str]]]]:
    """By case what the workload told of itself, and its launches: name, blocks, threads, shared bytes, first word."""
    launches = tmp_path_factory.mktemp("launches") / "launches"
    env = {**environment(), "LD_LIBRARY_PATH": str(libraries), "FAKE_CUDA_LAUNCHES": str(launches)}
    command = [sys.executable, "-c", STAND_IN, json.dumps(list(CASES.values())), str(launches)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told = [json.loads(line) for line in done.stdout.splitlines()]
    pieces = [piece.splitlines()[1:] for piece in launches.read_text().split('["begin"')[1:]]
    seen = [[line.split() for line in piece] for piece in pieces]
    return dict(zip(CASES, zip(told, seen, strict=True), strict=True))


@pytest.mark.usefixtures("real")
def test_blocks_are_held_by_as_many_sms_as_are_told_and_no_two_by_one(ran):
    told, launches = ran["quarter"]
    assert told == {"sm_ratio": 33 / 132, "occupancy_ratio": 33 / 132 / 64}
    assert len(launches) > 2
    name, blocks, threads, shared, duration_ns = launches[0]
    assert (name, blocks, threads, duration_ns) == ("hold", "33", "32", "20000000")
    assert 2 * int(shared) > 233472


@pytest.mark.usefixtures("real")
def test_64_warps_are_two_blocks_of_which_an_sm_holds_no_third(ran):
    told, launches = ran["warps"]
    assert told == {"sm_ratio": 1.0, "occupancy_ratio": 1.0}
    assert launches[0][1:3] == ["264", "1024"]
    shared = int(launches[0][3]) + 1024
    assert 2 * shared <= 233472 < 3 * shared


def test_multiply_adds_and_chases_are_started_on_every_sm(ran):
    assert ran["fma64"][0]["operations_per_second"] > 0
    assert ran["fma64"][1][-1][:3] == ["fma64", "264", "1024"]
    assert ran["chase"][1][-1][:3] == ["chase", "132", "128"]


def test_bursts_keep_their_duty_cycle_and_the_other_workloads_tell_what_they_moved(ran):
    assert 0.0 < ran["bursts"][0]["duty"] <= 0.5
    assert ran["gemm"][0]["flops"] > 0
    assert ran["triad"][0]["bytes_per_second"] > 0
    assert ran["copies"][0]["bytes_per_second"] > 0
    assert ran["tiny"][0]["launches_per_second"] > 0


def test_an_architecture_that_nvrtc_does_not_know_is_told_with_its_words(libraries):
    program = (
        "from cordee.systems.score.validation.programs.kernels import SOURCE, compile_source\n"
        "from cordee.machine.probes.common import Obstacle\n"
        "try: compile_source(SOURCE, 'sm_103', '12.8')\n"
        "except Obstacle as error: print(error)\n"
    )
    env = {**environment(), "LD_LIBRARY_PATH": str(libraries), "CUDA_HOME": os.devnull}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True)
    words = "NVRTC cannot compile for sm_103: error: invalid value for --gpu-architecture=sm_103"
    assert done.stdout.strip() == words
