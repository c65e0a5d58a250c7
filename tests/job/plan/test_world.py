"""What a rank is told of its world, and what `[env]` may say of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import HEAD, Make

ALONE = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "TF_CONFIG")
OWN_LAUNCHER = (*ALONE, "JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID")


@pytest.mark.parametrize(
    ("text", "untold"),
    [
        (HEAD, ALONE),
        (f"{HEAD}[need]\nspare_nodes = 1\n", ALONE),
        (f"{HEAD}[need]\nranks_per_node = 1\n", ()),
        (f"{HEAD}[need]\nranks_per_node = 2\n", ()),
        (f"{HEAD}[need]\nnodes = 2\n", ()),
        (f"{HEAD}[need]\ngpus_per_node = 1\n", ()),
        ('name = "a"\nrun = "torchrun --nproc-per-node 2 train.py"\n', OWN_LAUNCHER),
        ('name = "a"\nrun = "mpirun -n 4 ./train"\n[need]\ngpus_per_node = 4\n', OWN_LAUNCHER),
        ('name = "a"\nrun = "torchrun train.py"\n[need]\nnodes = 2\n', ()),
    ],
)
def test_a_rank_alone_is_not_told_of_a_world_unless_it_is_asked_for(
    make: Make, text: str, untold: tuple[str, ...]
) -> None:
    assert make(text, gpus=4)[1].step.tasks.untold == untold


@pytest.mark.parametrize("name", ["RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "JAX_PROCESS_ID", "TF_CONFIG"])
def test_what_env_says_of_the_world_is_refused_by_name_where_it_cannot_hold(make: Make, name: str) -> None:
    findings = make(f'{HEAD}[need]\nnodes = 2\n[env]\nNCCL_DEBUG = "INFO"\n{name} = "3"\n')[2]
    (found,) = [finding for finding in findings if finding.severity == "error"]
    assert (found.rule, found.line, found.given) == ("not-honoured", 7, f"{name}=3")
    assert found.text == f"{name} of [env] cannot be used: Cordée sets it for every rank"
    assert str(found.next).startswith("remove it")


def test_a_rank_alone_keeps_what_env_says_of_a_world(make: Make) -> None:
    assert make(f'{HEAD}[env]\nRANK = "0"\nWORLD_SIZE = "1"\n')[2] == []


JOINS = "import torch.distributed as dist\nimport os, cordee\ncordee.checkpointer()\n"
UNASKED = JOINS + "dist.init_process_group('gloo')\n"
ASKED = JOINS + "if int(os.environ.get('RANK', -1)) != -1: dist.init_process_group(rank=int(os.environ['RANK']))\n"
ASKED_SO = JOINS + "if 'RANK' in os.environ: dist.init_process_group('nccl')\n"
READS = "import os, cordee\ncordee.checkpointer()\nprint(os.environ['LOCAL_RANK'])\n"


@pytest.mark.parametrize(
    ("script", "need", "rules"),
    [
        (UNASKED, "", ["no-world"]),
        (UNASKED, "ranks_per_node = 1", []),
        (UNASKED, "nodes = 2", []),
        (ASKED, "", []),
        (ASKED_SO, "", []),
        (READS, "", ["no-world"]),
    ],
)
def test_a_script_that_wants_a_world_is_told_how_one_rank_gets_one(
    make: Make, tmp_path: Path, script: str, need: str, rules: list[str]
) -> None:
    (tmp_path / "job/train.py").write_text(script)
    findings = make(f"{HEAD}[need]\n{need}\n")[2]
    assert [finding.rule for finding in findings] == rules
    assert all("ranks_per_node = 1" in str(finding.next) for finding in findings)


def test_what_env_says_of_slurms_world_is_refused_under_slurm_only(make: Make, site: Make) -> None:
    env = 'env = { SLURM_PROCID = "3", SLURM_CPU_BIND = "none" }\n'
    findings = site("nodes = 2", 'scheduler = "slurm"\n', env)[2]
    assert [found.given for found in findings if found.rule == "not-honoured"] == ["SLURM_PROCID=3"]
