"""A real run with a slow rank: named while it goes on, with its cause, and switched off."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from cordee.faces.cli import cordee as main
from support.runs.real_run import LocalRun

# The files decide what the main thread is at; nothing of torch but their names is needed.
FILES = {
    "torch/__init__.py": "__version__ = '2.9'\n",
    "torch/distributed/__init__.py": """
import os


def is_available():
    return True


def get_world_size():
    return 4


def get_rank():
    return int(os.environ["RANK"])


is_initialized = is_available
""",
    "torch/distributed/distributed_c10d.py": "import time\n\n\ndef wait(seconds):\n    time.sleep(seconds)\n",
    "torch/utils/__init__.py": "",
    "torch/utils/data/__init__.py": "import time\n\n\ndef load(seconds):\n    time.sleep(seconds)\n",
}
TRAIN = """
import os, sys
from pathlib import Path

import torch
from torch.distributed.distributed_c10d import wait
from torch.utils.data import load

rank, attempt = int(os.environ["RANK"]), os.environ["CORDEE_ATTEMPT"]
while not Path("over").exists():
    slow = rank == 3 and attempt == "1"
    load(0.09 if slow else 0.06)
    wait(0.01 if slow else 0.04)
    if Path("fail").exists() and attempt == "1":
        sys.exit(3)
"""
TOML = """
name = "slow"
run = "python train.py"
[need]
nodes = 2
spare_nodes = 1
ranks_per_node = 2
[vet]
max_load = 1000.0
modules = []
[observe]
stragglers_action = "replace"
"""


@pytest.fixture
def job(tmp_path):
    folder = tmp_path / "job"
    for name, text in {"cordee.toml": TOML, "train.py": TRAIN, **FILES}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def shown(run, *words):
    done = CliRunner().invoke(main, [words[0], str(run.folder.root), *words[1:]])
    assert done.exit_code in (0, 1), done.output
    return done.stdout


@pytest.mark.campaign
@pytest.mark.usefixtures("real")
def test_the_slow_rank_is_named_while_the_run_goes_on_and_a_cause_of_the_program_is_not_its_node_s(job, tmp_path):
    with LocalRun(job, tmp_path / "runs", reported=True) as run:
        run.wait(lambda state: any(one.rule == "straggler-rank" for one in state.findings), seconds=150)
        found = json.loads(shown(run, "show", "--json"))["findings"]
        (finding,) = [one for one in found if one["rule"].startswith("straggler-")]
        assert (finding["ranks"], finding["nodes"]) == ([3], ["local-1"])
        assert finding["evidence"]["cause"] == "data"
        assert "rank 3 on local-1 is slow" in shown(run, "show")
        run.wait(lambda _: json.loads(shown(run, "stragglers", "--json"))["slow"])
        assert "it waits for its data" in shown(run, "stragglers")
        assert "none is suspected" in shown(run, "stragglers", "--dry-run")
        shown(run, "stragglers", "--off")
        run.wait(lambda _: json.loads(shown(run, "stragglers", "--json"))["on"] is False)
        (job / "fail").touch()
        run.wait(lambda state: state.restarts == 1)
        assert run.events("nodes_chosen")[1]["nodes"] == ["local-0", "local-1"]
        (job / "over").touch()
        assert run.wait_end().state == "finished"
