"""Runs in a container under Slurm: one container on each node, whatever happens to it."""

from __future__ import annotations

import os

import pytest

from cordee.testing.container_runs import edf_with_python, holders, mounts_left
from cordee.testing.images import busybox_root
from cordee.testing.programs import COUNTING

pytestmark = pytest.mark.slow
TELLING = """
import os, pathlib
name = pathlib.Path("/etc/os-release").read_text().split()[0]
print("TOLD", name, os.environ["SLURM_PROCID"], os.environ["SLURM_NODEID"], os.environ["FROM_EDF"], flush=True)
"""
TOML = 'environment = "env.toml"\n[need]\nnodes = 2\nranks_per_node = 2\n'


def test_the_ranks_of_two_nodes_are_inside_and_a_lost_container_is_opened_again(job, start, slurm, tmp_path):
    root = busybox_root(tmp_path / "root")
    folder = job("python train.py 40 0.08", TOML, TELLING + COUNTING)
    (folder / "env.toml").write_text(edf_with_python(root, 'FROM_EDF = "yes"'))
    run = start(folder)
    state = run.wait_training()
    nodes = [node.node for node in state.nodes]
    run.wait(lambda state: state.checkpoint)
    told = [run.output(rank).decode().splitlines()[0] for rank in range(4)]
    assert told == [f'TOLD NAME="busybox" {rank} {rank // 2} yes' for rank in range(4)]
    first = {node: holders(run, node) for node in nodes}
    os.kill(first[nodes[1]][0], 9)
    state = run.wait_end()
    assert (state.state, state.restarts) == ("finished", 1), state.text
    assert [event["node"] for event in run.events("container_lost")] == [nodes[1]]
    assert run.processes() == []
    assert mounts_left(run) == []
