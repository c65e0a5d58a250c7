"""plan.json is exactly what the node side reads."""

from __future__ import annotations

import json
import os
from pathlib import Path
from unittest.mock import ANY

import pytest

from cordee.job.plan.render import render_plan, render_provenance

from .conftest import HEAD, Make

WHOLE = """
name = "a"
run = "python train.py"
setup = "module load x"
env = { K = "V", N = 3 }
code = "snapshot"
[need]
nodes = 2
spare_nodes = 1
cpus_per_rank = 2
memory = "1GB"
gpu = "memory >= 24GB"
time = "1h"
account = "a1"
[vet]
commands = ["git"]
modules = ["json"]
max_load = 1.5
deadline = "10s"
[checkpoint]
path = "saved"
pattern = "s-*"
resume = "--resume {checkpoint}"
signal = "SIGUSR1"
every = "5min"
grace = "1min"
[restart]
retries = 1
backoff = "2s"
[sampling]
interval = 2
[timeouts]
lost = 5
[slurm]
options = ["--x"]
"""


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VIRTUAL_ENV", "/active")


def test_the_document_of_a_plan_has_every_key_of_the_contract(make: Make, tmp_path: Path) -> None:
    _, plan, _ = make(WHOLE)
    folder = str(tmp_path / "job")
    assert json.loads(json.dumps(plan.document())) == {
        "schema": "cordee.plan/1",
        "run": "a-1",
        "name": "a",
        "backend": "local",
        "cluster": "local",
        "job_folder": folder,
        "workdir": str(tmp_path / "runs/a-1/code"),
        "folder": str(tmp_path / "runs/a-1"),
        "code_digest": "",
        "steps": [
            {
                "name": "main",
                "request": {
                    "nodes": 2,
                    "spare_nodes": 1,
                    "min_nodes": 2,
                    "gpus_per_node": 0,
                    "ranks_per_node": 1,
                    "cpus_per_rank": 2,
                    "memory_bytes": 10**9,
                    "time_s": 3600.0,
                    "gpu": "memory >= 24GB",
                    "scheduler": {
                        "account": "a1",
                        "partition": None,
                        "qos": None,
                        "constraint": None,
                        "reservation": None,
                        "options": ["--x"],
                        "exclusive": False,
                        "gpu_type": None,
                        "requirements": None,
                        "attributes": {},
                        "max_idle": None,
                        "max_materialize": None,
                    },
                    "disk_bytes": None,
                },
                "tasks": {
                    "argv": ["python", "train.py"],
                    "env": {"K": "V", "N": "3"},
                    "path_prepend": [],
                    "launch": "fork",
                    "setup": ["module load x"],
                    "mpi": None,
                    "bind": "none",
                    "untold": [],
                },
                "vet": {
                    "commands": ["git"],
                    "modules": ["json"],
                    "min_memory_bytes": 256 << 20,
                    "min_disk_bytes": 256 << 20,
                    "max_load_ratio": 1.5,
                    "deadline_s": 10.0,
                    "protocol": None,
                },
                "checkpoint": {
                    "path": f"{folder}/saved",
                    "pattern": "s-*",
                    "resume": ["--resume", "{checkpoint}"],
                    "signal": "USR1",
                    "every_s": 300.0,
                    "grace_s": 60.0,
                    "ignore": {},
                    "declared": True,
                    "own_folder": False,
                    "begin": None,
                    "asynchronous": False,
                    "pace": "auto",
                    "keep": 3,
                    "milestones": None,
                    "tiers": ["shared"],
                    "node_places": [],
                    "purge_s": None,
                    "seen_as": None,
                },
                "restart": {"retries": 1, "backoff_s": 2.0, "forget_s": None},
                "segment": {"limit_s": 3600.0, "grace_s": 60.0, "max_segments": 1, "next": "requeue"},
                "environment": None,
                "data": [],
                "systems": {
                    "egress": {
                        "action": "report",
                        "most": 10**9,
                        "every_s": 1.0,
                        "listed": {"site": ANY, "registries": {}, "object_stores": {}, "listed": {}},
                        "counters": None,
                        "account": None,
                        "cluster": "local",
                    },
                    "scan": {"policy": "", "allow": [], "held_back": []},
                },
            }
        ],
        "timeouts": {
            "connect_s": 30.0,
            "heartbeat_s": 0.5,
            "lost_s": 5.0,
            "orphan_s": 60.0,
            "kill_s": 2.5,
            "lease_s": 2.0,
        },
        "sampling": {"interval_s": 2.0, "gpus": "auto", "threads": None, "hardware": True, "keep_s": None},
        "metrics": {
            "adapters": ["wandb", "tensorboard", "mlflow", "device_mesh", "megatron"],
            "scrape": [],
        },
        "python": None,
        "network_interface": None,
        "network_trusted": False,
        "node_parts": {
            "preparation": "cordee.systems.vetting.node.preparation:NodeVetting",
            "checks": "cordee.systems.vetting.node.checks",
            "checkpoints": "cordee.systems.checkpoints.node.owner:RunCheckpoints",
            "companion/checkpoints": "cordee.systems.checkpoints.node.tiers.companion:CheckpointCompanion",
            "companion/egress": "cordee.systems.egress.node.companion:EgressWatch",
            "companion/explain": "cordee.systems.explain.node.companion:StandWatch",
            "companion/explain-hardware": "cordee.systems.explain.node.hardware.watch:HardwareWatch",
            "companion/misuse": "cordee.systems.misuse.node.companion:MisuseWatch",
            "look/scan": "cordee.systems.scan.node.staged:staged_findings",
            "watcher/egress": "cordee.systems.egress.node.watch:EgressJudge",
            "watcher/explain": "cordee.systems.explain.node.hang.watch:HangWatch",
            "watcher/explain-profile": "cordee.systems.explain.node.profile.watch:ProfileWatch",
            "watcher/explain-slow": "cordee.systems.explain.node.slow.watch:SlowWatch",
            "watcher/rules": "cordee.systems.rules.node.watch:RuleWatch",
        },
    }


def test_a_job_without_a_checkpoint_table_saves_in_the_run_folder(make: Make, tmp_path: Path) -> None:
    _, plan, _ = make(HEAD)
    checkpoint = plan.step.checkpoint
    assert (checkpoint.path, checkpoint.pattern) == (str(tmp_path / "runs/a-1/checkpoints"), "step-*")
    assert (checkpoint.declared, checkpoint.resume, checkpoint.ignore) == (False, None, {})
    assert plan.workdir == plan.job_folder == str(tmp_path / "job")
    assert plan.timeouts.lost_s == 20.0


def test_checkpoints_that_are_there_already_are_ignored_by_name_and_time(make: Make, tmp_path: Path) -> None:
    saved = tmp_path / "job/checkpoints"
    saved.mkdir()
    for name in ("step-1.json", "step-20.json", "other"):
        (saved / name).write_text("{}")
    _, plan, findings = make(HEAD + "[checkpoint]\npath = 'checkpoints'\n")
    times = {name: os.stat(saved / name).st_mtime_ns for name in ("step-1.json", "step-20.json")}
    assert plan.step.checkpoint.ignore == times
    (found,) = [finding for finding in findings if finding.rule == "earlier-checkpoints"]
    assert (found.severity, found.line, found.given) == ("info", 4, ["step-1.json", "step-20.json"])
    assert found.text.startswith(f"2 checkpoints lie in {saved} already")


@pytest.mark.parametrize(
    ("run", "need", "ranks"),
    [
        ("python train.py", "", 1),
        ("python train.py", "gpus_per_node = 2", 2),
        ("python train.py", "gpus_per_node = 2\nranks_per_node = 5", 5),
        ("torchrun train.py", "gpus_per_node = 2", 1),
        ("python -m torch.distributed.run train.py", "gpus_per_node = 2", 1),
        ("mpirun python train.py", "ranks_per_node = 'gpu'\ngpus_per_node = 4", 1),
    ],
)
def test_ranks_per_node_follow_gpus_and_launchers(make: Make, run: str, need: str, ranks: int) -> None:
    _, plan, _ = make(f'name = "a"\nrun = "{run}"\n[need]\n{need}\n', gpus=8)
    assert plan.step.request.ranks_per_node == ranks


@pytest.mark.parametrize(
    ("run", "need", "bind", "said"),
    [
        ("python train.py", "gpus_per_node = 4", "gpu", 0),
        ("python train.py", "gpus_per_node = 4\nbind = 'none'", "none", 0),
        ("python train.py", "gpus_per_node = 4\nranks_per_node = 2", "none", 0),
        ("python train.py", "gpus_per_node = 4\nranks_per_node = 8\nbind = 'gpu'", "gpu", 0),
        ("torchrun train.py", "gpus_per_node = 4", "none", 0),
        ("python train.py", "bind = 'gpu'", "none", 1),
    ],
)
def test_ranks_are_bound_near_gpus_where_each_has_one_or_the_job_says_so(
    make: Make, run: str, need: str, bind: str, said: int
) -> None:
    _, plan, findings = make(f'name = "a"\nrun = "{run}"\n[need]\n{need}\n', gpus=8)
    assert plan.step.tasks.bind == bind
    assert [finding.line for finding in findings if "need.bind" in finding.text] == [4] * said


def test_a_short_limit_leaves_half_of_it_to_train(make: Make) -> None:
    _, plan, _ = make(HEAD + "[need]\ntime = 60\n")
    assert (plan.step.segment.limit_s, plan.step.segment.grace_s) == (60, 30)


def test_a_plan_is_frozen(make: Make) -> None:
    _, plan, _ = make(HEAD)
    with pytest.raises(ValueError, match="frozen"):
        plan.run = "b"


def test_check_shows_what_would_run(make: Make, tmp_path: Path) -> None:
    _, plan, _ = make(WHOLE)
    folder = tmp_path / "job"
    assert render_plan(plan, "# one\n#two\n\nthree\n# four\n") == (
        f"""\
job         a on local (local)
command     python train.py
in          {tmp_path}/runs/a-1/code (a snapshot of the job's folder)
nodes       2 and 1 spare
ranks       2 (1 per node)
cores       2 per rank
memory      1 GB per node
time        1 h; the ranks are asked to stop 1 min before
set-up      module load x
env         K=***
env         N=3
vetting     268 MB of memory, 268 MB of disk, git, import json on every node
checkpoints {folder}/saved/s-*
restart     appends --resume '{{checkpoint}}'
signal      USR1 to the ranks before the time is over
failures    all ranks are restarted, once without a new checkpoint in between
run folder  {tmp_path}/runs/a-1

what would be started:
  # one
  #two

  # 2 lines that start Cordée's own processes: `cordee check --explain` shows them
"""
    )
    assert render_plan(plan, "# one\nthree\n# four\n", whole=True).endswith("started:\n  # one\n  three\n  # four\n")
    assert render_plan(plan, "one\n# two\n").endswith("started:\n  one\n  # two\n")


def test_explain_shows_where_values_come_from(make: Make, tmp_path: Path) -> None:
    loaded, _, _ = make(HEAD + "[need]\nnodes = 2\n")
    lines = [line.split() for line in render_provenance(loaded).splitlines()]
    assert ["need.nodes", "2", "document", f"{tmp_path}/job/cordee.toml:4"] in lines
    assert ["restart.retries", "3", "default"] in lines
