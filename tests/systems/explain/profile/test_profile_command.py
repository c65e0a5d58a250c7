"""`cordee profile`: a real run whose ranks know nothing of Cordée, and what is said where there is nothing to profile."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from cordee.core.errors import CordeeError, UsageError
from cordee.faces.cli import cordee as main
from cordee.systems.explain.cli import profile as profile_command
from support.made.runs import MadeRun, write_run
from support.runs.real_run import LocalRun

SCRIPT = """
import os, time
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

torch.manual_seed(0)
torch.set_num_threads(1)
dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.AdamW(model.parameters(), 0.01)
with open(f"losses-{dist.get_rank()}", "w", buffering=1) as losses:
    ending = torch.zeros(1)
    while not ending.item():
        loss = model(torch.ones(4, 8)).square().sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(loss.item().hex(), file=losses)
        time.sleep(0.02)
        ending = torch.tensor([float(os.path.exists("end"))])
        dist.broadcast(ending, 0)
dist.destroy_process_group()
"""
JOB = """\
name = "traced"
run = "python train.py"
[need]
ranks_per_node = 2
[vet]
max_load = 1000.0
modules = []
"""


@pytest.mark.usefixtures("real")
@pytest.mark.gate
def test_ranks_of_a_run_trace_the_same_steps_and_train_as_without(tmp_path):
    job = tmp_path / "job"
    job.mkdir()
    (job / "train.py").write_text(SCRIPT)
    (job / "cordee.toml").write_text(JOB)
    with LocalRun(job, tmp_path / "runs", reported=False) as run:
        folder = str(run.folder.root)
        run.wait(lambda _: all(lines(job, rank) > 2 for rank in (0, 1)), 120)
        done = CliRunner().invoke(main, ["profile", folder, "--ranks", "0,1", "--steps", "3", "--json"])
        for _ in range(3):  # an agent sees a rank a moment after its first step
            if "shows no agent" in done.output:
                done = CliRunner().invoke(main, ["profile", folder, "--ranks", "0,1", "--steps", "3", "--json"])
        assert done.exit_code == 0, done.output
        document = json.loads(done.stdout)
        assert document["missing"] == []
        names = []
        for rank, trace in enumerate(document["traces"]):
            assert (trace["rank"], trace["steps"]) == (rank, 3)
            events = json.loads(gzip.decompress(Path(trace["path"]).read_bytes()))["traceEvents"]
            assert sum("all_reduce" in event["name"] for event in events) >= 3
            names.append([event["name"] for event in events if event["name"].startswith("ProfilerStep")])
        assert len(names[0]) == 3
        # All begin with the first step after one moment, which a machine with much to do may see one step apart.
        assert abs(document["traces"][0]["before"] - document["traces"][1]["before"]) <= 1
        done = CliRunner().invoke(main, ["profile", folder, "--ranks", "1,7", "--seconds", "0.5"])
        assert done.exit_code == 1, done.output
        assert "rank 1  " in done.stdout
        assert "ui.perfetto.dev" in done.stdout
        assert "the run has no such rank" in done.stderr
        (job / "end").touch()
        assert run.wait_end().state == "finished"
    first, second = ((job / f"losses-{rank}").read_text().split() for rank in (0, 1))
    assert first == second
    assert float.fromhex(first[-1]) < float.fromhex(first[0])


def lines(job: Path, rank: int) -> int:
    path = job / f"losses-{rank}"
    return path.read_text().count("\n") if path.exists() else 0


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("runs"), MadeRun(gpus=8, seconds=20))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "only a run that goes on can be profiled"),
        (["--ranks", "a"], "--ranks names no ranks"),
        (["--ranks", "3-1"], "--ranks names no ranks"),
        (["--ranks", "0-99999999999"], "--ranks names no ranks"),
        (["--ranks", "0-60,100-160"], "too many ranks"),
        (["--steps", "3", "--seconds", "2"], "only torch knows steps"),
        (["--steps", "3", "--tool", "perf"], "only torch knows steps"),
        (["--with", "stacks", "--tool", "perf"], "only torch records more"),
        (["--wait", "soon"], "--wait is not a duration"),
        (["--wait", "5s"], "--wait does not fit"),
    ],
)
def test_what_cannot_be_asked_is_refused(ended, options, said):
    done = CliRunner().invoke(main, ["profile", str(ended.root), *options])
    assert isinstance(done.exception, UsageError)
    assert said in str(done.exception)


def test_a_supervisor_that_does_not_answer_is_told(tmp_path, monkeypatch):
    folder = write_run(tmp_path, MadeRun(gpus=8, seconds=20))
    monkeypatch.setattr(profile_command, "_SEEN_S", 0.5)
    monkeypatch.setattr(profile_command, "state_of", lambda _: type("State", (), {"state": "running"}))
    folder.requests.mkdir(parents=True, exist_ok=True)
    done = CliRunner().invoke(main, ["profile", str(folder.root)])
    assert isinstance(done.exception, CordeeError)
    assert "has not answered" in str(done.exception)
