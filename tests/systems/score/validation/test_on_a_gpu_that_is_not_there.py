"""The whole way of the command on a GPU: a torch and an NVML that stand in for the real ones, all else is real."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import cordee
from cordee.faces.cli import main
from cordee.systems.score.validation.judge import read_document
from support.nvml import FakeGpus

pytestmark = pytest.mark.usefixtures("real")

# What `gemm` and the look for GPUs need of torch; a multiplication takes 2 ms and no CPU.
TORCH = """
import time, types
__version__, bfloat16 = "2.13.0", "bf16"
version = types.SimpleNamespace(cuda="12.8", hip=None)
randn = lambda *size, **more: None
empty_like = lambda other: None
mm = lambda a, b, out: time.sleep(0.002)
class Event:
    def __init__(self, **options): pass
    def record(self): pass
    def synchronize(self): pass
cuda = types.SimpleNamespace(
    init=lambda: None, device_count=lambda: len(UUIDS), Event=Event,
    get_device_properties=lambda index: types.SimpleNamespace(name="NVIDIA H100 80GB HBM3", uuid=UUIDS[index]),
)
"""
# Percent, by the ids of nvml.h: graphics, SM, occupancy, tensor, fp64, fp32, fp16, DRAM, and tensor halves.
GEMM = {1: 100, 2: 98, 3: 22, 5: 86, 11: 0, 12: 4, 13: 0, 10: 28, 7: 86}


def stand_in(folder: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have workloads import this as torch."""
    (folder / "lib" / "torch").mkdir(parents=True)
    (folder / "lib" / "torch" / "__init__.py").write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(folder / "lib"))


def validate(target: Path, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, dict]:
    """Return exit code and document of the command with one workload for a few seconds."""
    quick = ["--only", "gemm-bf16", "--minutes", "0.2", "--interval", "0.25"]
    with pytest.raises(SystemExit) as ended:
        main(["score", "validate", *quick, "-o", str(target), "--json", *options])
    return int(ended.value.code or 0), json.loads(capsys.readouterr().out)


def test_a_workload_of_one_of_two_gpus_is_recorded_through_nvml_scored_and_judged(
    tmp_path: Path, fake_nvml, monkeypatch, capsys
):
    gpus = FakeGpus(tmp_path / "nvml", 2, library=fake_nvml).gpm(0, GEMM).device(0, memory_used=60 << 30, clock_sm=1830)
    for name, value in gpus.env.items():
        monkeypatch.setenv(name, value)
    uuids = [gpus.uuid(index) for index in range(2)]
    stand_in(tmp_path, f"UUIDS = {[uuid[4:] for uuid in uuids]}\n{TORCH}", monkeypatch)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    target = tmp_path / "validation"
    code, document = validate(target, capsys)
    (gemm,) = document["workloads"]
    assert (code, gemm["status"], gemm["found"]) == (0, "pass", "compute"), document
    assert gemm["model"] == "NVIDIA H100 80GB HBM3"
    assert [gpu["uuid"] for gpu in document["place"]["gpus"]] == uuids
    assert cordee.open_run(target / "gemm-bf16").grid("gpu-0.25s", ["gpu_sm_ratio"]).devices == uuids[:1]
    _, kept = read_document(target / "gemm-bf16")
    assert (kept["half"], kept["place"]["cuda"]) == ("tuned", "12.8")


def test_without_a_gpu_the_command_says_what_to_do_and_runs_nothing(tmp_path: Path, monkeypatch, capsys):
    stand_in(tmp_path, "import types\n__version__, version = '2.13.0', types.SimpleNamespace(cuda=None)", monkeypatch)
    code, document = validate(tmp_path / "validation", capsys)
    assert (code, document["error"]["kind"]) == (2, "no_gpu")
    assert "is built without CUDA and ROCm" in document["error"]["text"]
    assert "--device cpu" in document["error"]["next"]
    assert not (tmp_path / "validation").exists()


def test_a_workload_that_fails_is_unknown_with_its_last_words(tmp_path: Path, fake_nvml, monkeypatch, capsys):
    for name, value in FakeGpus(tmp_path / "nvml", 1, library=fake_nvml).gpm(0, GEMM).env.items():
        monkeypatch.setenv(name, value)
    broken = "def mm(a, b, out): raise RuntimeError('CUDA error: out of memory')\n"
    stand_in(tmp_path, f"UUIDS = ['1234']\n{TORCH}\n{broken}", monkeypatch)
    code, document = validate(tmp_path / "validation", capsys)
    (gemm,) = document["workloads"]
    assert (code, gemm["status"], gemm["bands"]) == (1, "unknown", [])
    assert "ended with exit code 1" in gemm["text"]
    assert gemm["text"].endswith("CUDA error: out of memory")
    assert document["accuracy"] == {"tuned": None, "held out": None}


def test_a_gpu_whose_counters_are_closed_is_refused_with_the_reason_before_anything_runs(
    tmp_path: Path, fake_nvml, monkeypatch, capsys
):
    for name, value in FakeGpus(tmp_path / "nvml", 1, library=fake_nvml).env.items():
        monkeypatch.setenv(name, value)
    stand_in(tmp_path, f"UUIDS = ['1234']\n{TORCH}", monkeypatch)
    code, document = validate(tmp_path / "validation", capsys)
    assert (code, document["error"]["kind"]) == (2, "counters_closed")
    assert "GPM" in document["error"]["text"]
    assert not (tmp_path / "validation").exists()
