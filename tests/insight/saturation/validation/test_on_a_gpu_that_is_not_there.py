"""The whole way of the command on a GPU: a torch and an NVML that stand in for the real ones, all else is real."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import cordee
from cordee.cli import main
from cordee.insight.saturation.validation.judge import read_document
from cordee.testing.nvml import FakeGpus

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


@pytest.mark.slow
def test_a_workload_of_one_of_two_gpus_is_recorded_through_nvml_scored_and_judged(
    tmp_path: Path, fake_nvml, monkeypatch, capsys
):
    gpus = FakeGpus(tmp_path / "nvml", 2, library=fake_nvml).gpm(0, GEMM).device(0, memory_used=60 << 30, clock_sm=1830)
    for name, value in gpus.env.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "lib" / "torch").mkdir(parents=True)
    uuids = [gpus.uuid(index) for index in range(2)]
    (tmp_path / "lib" / "torch" / "__init__.py").write_text(f"UUIDS = {[uuid[4:] for uuid in uuids]}\n{TORCH}")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "lib"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    target = tmp_path / "validation"
    options = ["--only", "gemm-bf16", "--minutes", "0.2", "--interval", "0.25", "-o", str(target)]
    with pytest.raises(SystemExit) as ended:
        main(["score", "validate", *options, "--json"])
    document = json.loads(capsys.readouterr().out)
    (gemm,) = document["workloads"]
    assert (ended.value.code, gemm["status"], gemm["found"]) == (0, "pass", "compute"), document
    assert gemm["model"] == "NVIDIA H100 80GB HBM3"
    assert [gpu["uuid"] for gpu in document["place"]["gpus"]] == uuids
    assert cordee.open_run(target / "gemm-bf16").grid("gpu-0.25s", ["gpu_sm_ratio"]).devices == uuids[:1]
    _, kept = read_document(target / "gemm-bf16")
    assert (kept["half"], kept["place"]["cuda"]) == ("tuned", "12.8")
