"""GPUs under `cordee run`: their samples and whose they are stand in the run's telemetry, and nothing is left behind."""

from __future__ import annotations

import os

import numpy as np
import pytest

import cordee
from support.nvml import FakeGpus

pytestmark = pytest.mark.usefixtures("real")


@pytest.mark.gate
def test_a_run_has_the_samples_of_its_gpus_and_of_its_cores(job, start, fake_nvml, tmp_path, monkeypatch):
    fake = FakeGpus(tmp_path / "fake", count=2, library=fake_nvml)
    for gpu in range(2):
        fake.gpm(gpu, {1: 90.0, 2: 45.0 + gpu})
    for name, value in {**fake.env, "CUDA_VISIBLE_DEVICES": fake.uuid(1)}.items():
        monkeypatch.setenv(name, value)
    script = job("import time; time.sleep(2.5)", run="python train.py")
    run = start(script, sampling__interval=0.5, sampling__gpus="nvml-gpm")
    assert run.wait_end().state == "finished"
    read = cordee.open_run(run.folder.root)
    grid = read.grid("gpu-0.5s", ["gpu_sm_ratio"])
    assert list(grid.devices) == [fake.uuid(1)]
    values = grid.values[0]
    assert np.nanmax(values) == pytest.approx(0.46)
    (gpus,) = read.facts("gpu").values()
    assert gpus["devices"][fake.uuid(1)]["ranks"] == [0]
    (ranks,) = read.facts("rank").values()
    assert ranks["devices"]["0"]["gpus"] == [fake.uuid(1)]
    assert ranks["devices"]["0"]["cpus"] == sorted(os.sched_getaffinity(0))
    assert ranks["devices"]["0"]["bound"] == "not bound: bind is none"
    assert "cpu_share_cores" in read.grid("rank-0.5s").metrics
