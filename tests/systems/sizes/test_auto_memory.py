"""`memory = "auto"`: from real runs whose ranks held memory, and where none tells."""

from __future__ import annotations

from pathlib import Path

import pytest

from cordee.job.submit.prepare import prepare
from support.runs.real_run import LocalRun

pytestmark = pytest.mark.usefixtures("real")

HOLDING = "import time; held = bytearray(150_000_000); time.sleep(2.5)"
_QUICK = {"timeouts__lost": 4.0, "vet__max_load": 1000.0, "sampling__interval": "1s"}


def job_of(folder: Path) -> Path:
    job = folder / "job"
    job.mkdir()
    (job / "cordee.toml").write_text(
        f"name = 'auto'\nrun = ['python', '-c', '{HOLDING}']\n[need]\nmemory = 'auto'\nranks_per_node = 2\n"
    )
    return job


@pytest.mark.gate
def test_without_a_run_nothing_is_asked_for_and_after_one_twice_what_its_ranks_held(tmp_path: Path) -> None:
    job = job_of(tmp_path)
    with LocalRun(job, tmp_path / "runs", reported=False, **_QUICK) as run:
        assert run.prepared.plan.step.request.memory_bytes is None
        (told,) = [finding for finding in run.prepared.findings if finding.rule == "memory-auto"]
        assert "tells how much memory it needs" in told.text
        assert run.wait_end().state == "finished"
        run.wait(lambda _: run.processes() == [])
    again = prepare(str(job), "local", {}, tmp_path / "runs")
    asked = again.plan.step.request.memory_bytes
    assert asked is not None
    assert 2 * 300_000_000 < asked < 2 * 500_000_000
    (told,) = [finding for finding in again.findings if finding.rule == "memory-auto"]
    assert told.text.startswith("memory = auto asks for")
    other = prepare(str(job), "local", {"name": "other"}, tmp_path / "runs")
    assert other.plan.step.request.memory_bytes is None
