"""What sbatch is asked for, for the share of a node that a plan has chosen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cordee.backends.slurm.script import options
from cordee.runs.folder import RunFolder


def plan(scheduler: dict[str, Any], **request: Any) -> dict[str, Any]:
    asked = {"nodes": 2, "spare_nodes": 1, "ranks_per_node": 4, "cpus_per_rank": 2, "memory_bytes": None}
    step = {
        "request": {**asked, "gpus_per_node": 0, "scheduler": {"options": [], **scheduler}, **request},
        "segment": {"limit_s": None, "grace_s": 120.0, "next": "requeue"},
    }
    return {"name": "a", "steps": [step]}


@pytest.mark.parametrize(
    ("scheduler", "request_", "asked"),
    [
        ({}, {}, []),
        ({"exclusive": True}, {}, ["--exclusive", "--mem=0"]),
        ({"exclusive": True}, {"memory_bytes": 10 << 20}, ["--exclusive", "--mem=10M"]),
        ({}, {"memory_bytes": (10 << 20) + 1}, ["--mem=11M"]),
        ({}, {"gpus_per_node": 4}, ["--gres=gpu:4"]),
        ({"gpu_type": "a100"}, {"gpus_per_node": 4}, ["--gres=gpu:a100:4"]),
        ({"options": ["--gres=tmpfs:20G"]}, {"gpus_per_node": 4}, ["--gres=gpu:4,tmpfs:20G"]),
        ({"options": ["--gres tmpfs:20G", "--gres=nic:1"]}, {"gpus_per_node": 4}, ["--gres=gpu:4,tmpfs:20G,nic:1"]),
        ({"options": ["--gres=tmpfs:20G"]}, {}, ["--gres=tmpfs:20G"]),
    ],
)
def test_a_share_of_a_node_is_asked_for_in_slurms_words(
    tmp_path: Path, scheduler: dict[str, Any], request_: dict[str, Any], asked: list[str]
) -> None:
    found = options(RunFolder(tmp_path / "a-1"), plan(scheduler, **request_))
    assert [word for word in found if word.startswith(("--mem", "--gres", "--exclusive"))] == asked
    assert found[2:5] == ["--nodes=3", "--ntasks-per-node=4", "--cpus-per-task=2"]


def test_options_beside_a_generic_resource_are_kept_as_they_are(tmp_path: Path) -> None:
    scheduler = {"options": ["--mail-type=END --gres=tmpfs:20G", '--mail-user="a b"']}
    found = options(RunFolder(tmp_path / "a-1"), plan(scheduler, gpus_per_node=1))
    assert found[-2:] == ["--mail-type=END", '--mail-user="a b"']
