"""What ranks learn of their world, and of `[env]` and set-up lines, in real runs on this machine."""

from __future__ import annotations

import json

import pytest

pytestmark = pytest.mark.usefixtures("real")

WORLD = """
import json, os, sys
from pathlib import Path

Path(f"environ-{os.environ.get('RANK', 'alone')}").write_text(json.dumps(dict(os.environ)))
ddp = int(os.environ.get("RANK", -1)) != -1  # as nanoGPT asks
assert ddp == (len(sys.argv) > 1), "it was taken for a distributed one"
"""
JAX = """
import jax
from jax.experimental import multihost_utils

jax.distributed.initialize()
total = multihost_utils.process_allgather(jax.numpy.asarray(jax.process_index() + 1))
with open(f"jax-{jax.process_index()}", "w") as file:
    print(jax.process_count(), int(total.sum()), file=file)
jax.distributed.shutdown()
"""
BY_HAND = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "TF_CONFIG")


@pytest.mark.gate
def test_one_rank_runs_as_if_started_by_hand_with_all_of_env_and_what_setup_lines_leave(job, start):
    toml = (
        'setup = ["export PYTHONPATH=/of/setup:$PYTHONPATH"]\n[env]\n'
        'OMP_NUM_THREADS = "3"\nLOCAL_RANK = "7"\nWANDB_MODE = "offline"\nPYTHONPATH = "/of/env"\n'
    )
    folder = job(WORLD, toml, run="python train.py")
    assert start(folder).wait_end().state == "finished"
    env = json.loads((folder / "environ-alone").read_text())
    assert [name for name in BY_HAND if name in env] == ["LOCAL_RANK"]
    assert (env["OMP_NUM_THREADS"], env["LOCAL_RANK"], env["WANDB_MODE"]) == ("3", "7", "offline")
    assert env["PYTHONPATH"].split(":")[1:] == ["/of/setup", "/of/env"]
    assert env["MASTER_PORT"].isdigit()
    assert env["JAX_NUM_PROCESSES"] == "1"


def test_one_rank_that_is_asked_for_by_number_is_a_world(job, start):
    folder = job(WORLD, "[need]\nranks_per_node = 1\n", run="python train.py distributed")
    assert start(folder).wait_end().state == "finished"
    env = json.loads((folder / "environ-0").read_text())
    assert [env[name] for name in BY_HAND[:4]] == ["0", "0", "1", "1"]


def test_jax_finds_its_world_without_arguments_on_a_laptop_whatever_is_recorded(job, start):
    toml = "[need]\nranks_per_node = 2\n[metrics]\nadapters = []\n"
    folder = job(JAX, toml, run="python train.py")
    assert start(folder).wait_end().state == "finished"
    assert [(folder / f"jax-{rank}").read_text() for rank in range(2)] == ["2 3\n"] * 2
