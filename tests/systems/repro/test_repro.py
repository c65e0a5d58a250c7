"""`[repro]`: what ranks find, what is said of it, and real runs that agree or do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from cordee.core.errors import DocumentError
from cordee.job.submit.prepare import prepare
from cordee.systems.sizes.agreement import agreement
from support.runs.real_run import LocalRun

SCRIPT = """
import random
import cordee
import numpy as np
import torch

model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Dropout(0.2), torch.nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
saver = cordee.checkpointer(model, optimizer)
order = list({f"sample {number}" for number in range(64)})
first = float(order[0].split()[1])
random.shuffle(order)
for step in range(4):
    x = torch.from_numpy(np.random.rand(4, 8).astype("f"))
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    cordee.log(step=step, loss=loss.item(), drawn=float(order[step].split()[1]), hashed=first, x=float(x[0, 0]))
cordee.log(step=4, deterministic=torch.are_deterministic_algorithms_enabled(), tf32=torch.backends.cudnn.allow_tf32)
saver.save(4)
"""
_QUICK = {"timeouts__lost": 20.0, "timeouts__heartbeat": 0.5, "vet__max_load": 1000.0, "scan__policy": "off"}


def prepared(folder: Path, more: str):
    folder.mkdir()
    (folder / "train.py").write_text("import torch\n")
    (folder / "cordee.toml").write_text(f'name = "same"\nrun = "python train.py"\n{more}')
    return prepare(str(folder), "local", {}, folder / "runs")


def test_ranks_find_seeds_and_the_cost_is_said(tmp_path: Path) -> None:
    found = prepared(tmp_path / "job", "[repro]\nseed = 7\n")
    env = found.plan.step.tasks.env
    assert (
        env.items()
        >= {
            "CORDEE_SEED": "7",
            "CORDEE_DETERMINISTIC": "1",
            "PYTHONHASHSEED": "7",
            "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
        }.items()
    )
    assert [one.line for one in found.findings if one.rule == "repro-cost"] == [3]
    without = prepared(tmp_path / "without", "")
    assert not {"CORDEE_SEED", "CORDEE_DETERMINISTIC", "PYTHONHASHSEED"} & {*without.plan.step.tasks.env}


def test_what_env_sets_holds_and_is_said(tmp_path: Path) -> None:
    found = prepared(tmp_path / "job", '[env]\nPYTHONHASHSEED = "3"\n[repro]\nseed = 7\n')
    assert found.plan.step.tasks.env["PYTHONHASHSEED"] == "3"
    assert [(one.severity, one.line) for one in found.findings if one.rule == "repro-env"] == [("warn", 4)]


def test_without_a_seed_it_is_said_that_nothing_is_seeded(tmp_path: Path) -> None:
    found = prepared(tmp_path / "job", "[repro]\ndeterministic = true\n")
    assert "CORDEE_SEED" not in found.plan.step.tasks.env
    assert "repro-no-seed" in {one.rule for one in found.findings}


@pytest.mark.parametrize("seed", ["-1", "4294967296", '"x"'])
def test_a_seed_that_numpy_refuses_is_refused(tmp_path: Path, seed: str) -> None:
    with pytest.raises(DocumentError, match=r"seed"):
        prepared(tmp_path / "job", f"[repro]\nseed = {seed}\n").require_valid()


@pytest.mark.usefixtures("real")
@pytest.mark.gate
def test_two_runs_with_a_seed_agree_bit_for_bit_and_one_without_does_not(tmp_path: Path) -> None:
    job = tmp_path / "job"
    job.mkdir()
    (job / "train.py").write_text(SCRIPT)
    folders = []
    for name, table in (("a", "[repro]\nseed = 7\n"), ("b", "[repro]\nseed = 7\n"), ("c", "")):
        (job / "cordee.toml").write_text(f'name = "same"\nrun = "python train.py"\n{table}')
        with LocalRun(job, tmp_path / name, reported=False, **_QUICK) as run:
            state = run.wait_end()
            assert state.state == "finished", run.output(0)
            folders.append(run.folder)
    same = agreement(folders[0], folders[1])
    assert (same.bitwise, same.checkpoint, same.differ) == (True, "equal", ())
    assert {"deterministic", "drawn", "hashed", "loss", "tf32", "x"} <= {*same.equal}
    other = agreement(folders[0], folders[2])
    assert (other.bitwise, other.checkpoint) == (False, "differ")
    assert {"deterministic", "drawn", "loss", "tf32", "x"} <= {*other.differ}
