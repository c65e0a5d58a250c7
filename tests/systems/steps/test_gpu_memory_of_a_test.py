"""GPU memory that a test has held, held against the request: from the driver's library to what is said and to what is submitted."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from cordee.job.submit import plan_of, submitter_of
from cordee.job.submit.prepare import create_run, prepare
from cordee.job.terminal.run_args import state_of
from support.nvml import FakeGpus

pytestmark = pytest.mark.usefixtures("real")

_GIB = 1 << 30
_TOML = """
name = "large"
run = "python train.py"
[need]
gpus_per_node = 1
gpu = "memory >= 24GB"
[sampling]
interval = "0.2s"
gpus = "nvml"
[vet]
max_load = 1000.0
[test]
"""


@pytest.mark.parametrize(
    ("used", "state", "words"),
    [
        (40 * _GIB, "failed", "the memory of GPUs is too small: a GPU of the test held 42.9 GB of its 85.9 GB at most"),
        (
            2 * _GIB,
            "finished",
            "the memory of GPUs is far too large: a GPU of the test held 2.15 GB of its 85.9 GB at most",
        ),
    ],
)
def test_a_job_whose_gpus_have_too_little_memory_is_not_submitted_after_its_test(
    tmp_path: Path, fake_nvml: Path, monkeypatch: pytest.MonkeyPatch, used: int, state: str, words: str
) -> None:
    fake = FakeGpus(tmp_path / "fake", count=1, library=fake_nvml).device(0, memory_used=used, utilization_gpu=90)
    for name, value in fake.env.items():
        monkeypatch.setenv(name, value)
    job = tmp_path / "job"
    job.mkdir()
    (job / "cordee.toml").write_text(_TOML)
    (job / "train.py").write_text("import pathlib, time\ntime.sleep(2)\npathlib.Path('trained').open('a').write('x')\n")
    run = create_run(prepare(str(job), "local", {}, tmp_path / "runs"))
    submitter_of(run).submit(run, plan_of(run))
    deadline = time.monotonic() + 90
    while not state_of(run).ended and time.monotonic() < deadline:
        time.sleep(0.1)
    ended = state_of(run)
    assert ended.state == state, ended.text
    assert words in f"{ended.text} {' '.join(finding.text for finding in ended.findings)}"
    # The test itself has run in both cases, the job only where it fits.
    assert (job / "trained").read_text() == ("xx" if state == "finished" else "x")
