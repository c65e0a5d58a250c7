"""Four trials with a GPU each on one node, whose GPUs are not there: what they read was brought to the node once."""

import json
import os
import sys
from pathlib import Path

import pytest

from cordee.job.submit.prepare import prepare
from cordee.systems.trials.sweeps import Sweep
from support.runs.real_run import LocalRun

pytestmark = pytest.mark.usefixtures("real")

# The node's kernel shows no GPU here; all else, the allocator as well, is the node's own.
_POOL = """
import os
from cordee.machine.slots import AllocatableGpu, Core, NodeSlots, SlotAllocator
from cordee.systems.trials.node.pool import TaskPool


class Unbound(SlotAllocator):
    def lend(self, name, asked):
        return super().lend(name, asked._replace(cores=0))


def four():
    there = [n for n in range(4) if not os.path.exists(os.path.join(os.environ["LOST_GPUS"], f"GPU-{n}"))]
    gpus = tuple(AllocatableGpu(f"0000:0{n}:00.0", f"GPU-{n}") for n in there)
    return NodeSlots(tuple(Core(frozenset([n])) for n in range(4)), gpus, 1 << 34)


class PoolOfFour(TaskPool):
    def __init__(self, host, plan, world):
        super().__init__(host, plan, world)
        host.slots = Unbound(four)
"""
_SCRIPT = """
import os, pathlib, sys, time
import cordee
place = pathlib.Path(os.environ["CORDEE_DATA_CORPUS"])
here = pathlib.Path("here")
here.mkdir(exist_ok=True)
(here / sys.argv[1]).touch()
while len(list(here.iterdir())) < 4:
    time.sleep(0.02)
files = sorted(path for path in place.rglob("*") if path.is_file())
print(os.environ["CUDA_VISIBLE_DEVICES"], place, files[0].stat().st_ino, flush=True)
cordee.log(loss=sum(len(path.read_bytes()) for path in files))
"""


_SWEEP = '[sweep]\nx = ["0", "1", "2", "3"]\ngoal = "min loss"\ngpus = 1\n'


def four_trials(
    folder: Path, kind: type[LocalRun], monkeypatch: pytest.MonkeyPatch, more: str = "", sweep: str = _SWEEP
) -> LocalRun:
    """Return a sweep of four trials that ask for a GPU each and read a data set that is brought to their node; its disk is `folder/disk`."""
    job, parts, disk = (folder / name for name in ("job", "parts", "disk"))
    for place in (job / "corpus", parts, disk):
        place.mkdir(parents=True)
    for number in range(3):
        (job / "corpus" / f"{number}.bin").write_bytes(os.urandom(1_000_000))
    (parts / "pool_of_four.py").write_text(_POOL)
    (job / "train.py").write_text(_SCRIPT)
    data = '[data.corpus]\nfrom = "corpus"\nto = "node"\n'
    (job / "cordee.toml").write_text(f'name = "four"\nrun = "python train.py {{x}}"\n{sweep}{data}{more}')
    monkeypatch.setenv("PYTHONPATH", str(parts))
    monkeypatch.setenv("SLURM_TMPDIR", str(disk))
    monkeypatch.setenv("LOST_GPUS", str(folder / "lost"))
    run = kind(job, folder / "runs", reported=False, vet__max_load=1000.0)
    plan = json.loads(run.folder.plan.read_text())
    plan["node_parts"]["launch/tasks"] = "pool_of_four:PoolOfFour"
    run.folder.plan.write_text(json.dumps(plan))
    return run


def read_the_source_once(run: LocalRun) -> str:
    """Wait for its end, and hold what the trials have seen against that; returns where they read."""
    assert run.wait_end().state == "finished"
    assert [trial["value"] for trial in Sweep(run.folder).trials] == [3_000_000] * 4
    (ended,) = run.events("staging_ended")
    assert ended["source_bytes"] == 3_000_000
    printed = [run.output(rank=number).decode().split() for number in range(4)]
    assert sorted(gpu for gpu, _, _ in printed) == [f"GPU-{number}" for number in range(4)]
    ((place, _),) = {(place, file) for _, place, file in printed}
    return place


def test_four_trials_with_a_gpu_each_read_the_source_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with four_trials(tmp_path, LocalRun, monkeypatch) as run:
        assert read_the_source_once(run).startswith(f"{tmp_path}/disk/")


_WORKER = """
import os, pathlib, sys, time
import cordee
here = pathlib.Path("here")
here.mkdir(exist_ok=True)
(here / f"{sys.argv[1]}-{os.environ['RANK']}").touch()
while len(list(here.iterdir())) < 4:
    time.sleep(0.02)
if os.environ["RANK"] == "0":
    cordee.log(loss=float(os.environ["WORLD_SIZE"]))
print(f"{os.environ['MASTER_PORT']}\\n", end="", flush=True)
"""


def test_two_trials_whose_ranks_call_torchrun_have_worlds_of_their_own_though_all_name_one_port(
    tmp_path: Path,
) -> None:
    job = tmp_path / "job"
    job.mkdir()
    (job / "train.py").write_text(_WORKER)
    run = f"{sys.executable} -m torch.distributed.run --nproc-per-node=2 --master-port=29500 train.py {{x}}"
    sweep = '[sweep]\nx = [1, 2]\ngoal = "min loss"\ntime = "4min"\nranks = 2\n'
    (job / "cordee.toml").write_text(f'name = "two"\nrun = "{run}"\n{sweep}')
    with LocalRun(job, tmp_path / "runs", reported=False, vet__max_load=1000.0) as started:
        state = started.wait_end()
        assert state.text == "2 trials done; best: loss = 2, trial 0: x=1"
        ports = [started.output(rank=number).split() for number in range(2)]
        assert len({port for printed in ports for port in printed if port.isdigit()}) == 4
        findings = prepare(str(job), "local", {}, tmp_path / "runs").findings
        assert [one.severity for one in findings if one.rule == "sweep-ranks"] == ["warn"]


def test_a_gpu_that_is_lost_under_a_trial_is_given_to_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lost").mkdir()
    sweep = '[sweep]\nx = "1..8"\ngoal = "min loss"\ngpus = 1\nretries = 1\n'
    run = four_trials(tmp_path, LocalRun, monkeypatch, sweep=sweep)
    (tmp_path / "job" / "train.py").write_text(
        "import os, pathlib, time, cordee\ngpu = os.environ['CUDA_VISIBLE_DEVICES']\nprint(gpu, flush=True)\n"
        "if gpu == 'GPU-3':\n    pathlib.Path(os.environ['LOST_GPUS'], gpu).touch()\n    raise SystemExit(9)\n"
        "time.sleep(0.5)\ncordee.log(loss=1)\n"
    )
    with run:
        assert run.wait_end().state == "finished"
        assert sorted(trial["tries"] for trial in Sweep(run.folder).trials) == [1] * 7 + [2]
        assert run.output().count(b"GPU-3") == 1
