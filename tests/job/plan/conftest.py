"""A folder with a job, and a function that plans it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from cordee.core.findings import Finding
from cordee.job.load import LoadedJob, load_job
from cordee.job.plan.compile import make_plan
from cordee.job.plan.model import Plan

Made = tuple[LoadedJob, Plan, list[Finding]]
Make = Callable[..., Made]

HEAD = 'name = "a"\nrun = "python train.py"\n'
# PyTorch without CUDA, as the tests have it, is told to jobs that ask for GPUs.
NO_SCAN = '[scan]\npolicy = "off"\n'


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Return a function that writes a document and returns (loaded, plan, findings) on a machine of known size."""
    folder = tmp_path / "job"
    folder.mkdir()
    (folder / "train.py").write_text("import cordee\ncordee.checkpointer()\n")
    monkeypatch.setenv("CORDEE_CLUSTERS_PATH", str(tmp_path / "clusters"))

    def call(text: str, **machine: object) -> Made:
        (folder / "cordee.toml").write_text(text)
        loaded = load_job(folder)
        if loaded.cluster.scheduler == "local":
            size = {"cores": 8, "memory": 10**10, "gpus": 0, **machine}
            loaded = replace(loaded, cluster=loaded.cluster.model_copy(update=size))
        plan, findings = make_plan(loaded, run_id="a-1", run_folder=tmp_path / "runs/a-1")
        return loaded, plan, findings

    return call


@pytest.fixture
def site(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Return a function that plans a job with this `[need]` for a site with this profile; no Slurm answers here."""
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "none"))
    monkeypatch.setenv("CORDEE_ON", "alps")
    (tmp_path / "clusters").mkdir()

    def call(need: str, profile: str, rest: str = "") -> Made:
        (tmp_path / "clusters/alps.toml").write_text(profile)
        return make(f"{HEAD}{rest}[need]\n{need}\n{NO_SCAN}")

    return call
