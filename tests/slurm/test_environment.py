"""Runs in a container under Slurm: one container on each node, whatever happens to it."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import cordee
from cordee.faces.cli.cancel import cancel
from cordee.systems.environments import spank_install
from cordee.testing.images import busybox_root
from cordee.testing.programs import COUNTING
from cordee.testing.slurm import DisposableSlurm
from cordee.testing.slurm.daemons import clean_environment
from support.runs.container_runs import edf_with_python, holders, mounts_left
from support.runs.real_run import SlurmRun

pytestmark = pytest.mark.usefixtures("real")

TELLING = """
import os, pathlib
name = pathlib.Path("/etc/os-release").read_text().split()[0]
print("TOLD", name, os.environ["SLURM_PROCID"], os.environ["SLURM_NODEID"], os.environ["FROM_EDF"], flush=True)
"""
TOML = 'environment = "env.toml"\n[need]\nnodes = 2\nranks_per_node = 2\n'


@pytest.mark.gate
def test_the_ranks_of_two_nodes_are_inside_and_a_lost_container_is_opened_again(job, start, slurm, tmp_path):
    root = busybox_root(tmp_path / "root")
    folder = job("python train.py 9000 0.03", TOML, TELLING + COUNTING)
    (folder / "env.toml").write_text(edf_with_python(root, 'FROM_EDF = "yes"'))
    run = start(folder)
    state = run.wait_training()
    nodes = [node.node for node in state.nodes]
    run.wait(lambda state: state.checkpoint)
    told = [run.output(rank).decode().splitlines()[0] for rank in range(4)]
    assert told == [f'TOLD NAME="busybox" {rank} {rank // 2} yes' for rank in range(4)]
    first = {node: holders(run, node) for node in nodes}
    os.kill(first[nodes[1]][0], 9)
    run.wait_training(attempt=2)
    assert holders(run, nodes[0]) == first[nodes[0]]
    cancel(run.folder, now=False, wait_s=60)
    state = run.wait_end()
    assert (state.state, state.restarts) == ("cancelled", 1), state.text
    assert [event["node"] for event in run.events("container_lost")] == [nodes[1]]
    assert run.processes() == []
    assert mounts_left(run) == []


def test_ranks_that_srun_starts_enter_the_same_containers(job, start, slurm, tmp_path, monkeypatch):
    monkeypatch.setenv("GONE", "host")
    folder = job(
        "python train.py 5 0.02", f'launch = "srun"\n{TOML}', TELLING + 'print(os.environ.get("GONE"))\n' + COUNTING
    )
    edf = edf_with_python(busybox_root(tmp_path / "root"), 'FROM_EDF = "yes"\nGONE = ""')
    (folder / "env.toml").write_text(edf)
    run = start(folder)
    state = run.wait_end()
    assert (state.state, state.restarts) == ("finished", 0), state.text
    told = [run.output(rank).decode().splitlines()[:2] for rank in range(4)]
    assert told == [[f'TOLD NAME="busybox" {rank} {rank // 2} yes', "None"] for rank in range(4)]
    assert run.processes() == []


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A Slurm whose srun has `--environment`, with a profile that says so; returns the folder for runs."""
    library = tmp_path / spank_install.LIBRARY
    spank_install.build(library)
    package = Path(cordee.__file__).parents[1]
    line = spank_install.plugstack_line(library, [f"python={sys.executable}", f"cordee={package}", "timeout_s=30"])
    (tmp_path / "clusters").mkdir()
    (tmp_path / "clusters/slurm.toml").write_text('[environment]\nengine = "step"\n')
    for name in set(os.environ) - set(clean_environment()):
        monkeypatch.delenv(name)
    monkeypatch.setenv("CORDEE_CLUSTERS_PATH", str(tmp_path / "clusters"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with DisposableSlurm(Path(tempfile.mkdtemp(prefix="cordee-step-")), nodes=2, files={"plugstack.conf": line}) as up:
        for name, value in up.env.items():
            monkeypatch.setenv(name, value)
        yield tmp_path / "runs"


def test_where_the_engine_is_an_option_of_srun_the_agents_themselves_are_inside(job, site, tmp_path):
    root = busybox_root(tmp_path / "root")
    folder = job("python train.py 20 0.05", TOML, TELLING + COUNTING)
    edf = edf_with_python(root, 'FROM_EDF = "yes"')
    (folder / "env.toml").write_text(
        edf.replace("mounts = [", f'mounts = ["{tmp_path}", "{sys.prefix}", "/dev/shm", ', 1)
    )
    with SlurmRun(folder, site, vet__max_load=1000.0) as run:
        state = run.wait_end()
    assert (state.state, state.restarts) == ("finished", 0), state.text
    told = [run.output(rank).decode().splitlines()[0] for rank in range(4)]
    assert told == [f'TOLD NAME="busybox" {rank} {rank // 2} yes' for rank in range(4)]
    assert run.processes() == []


PYXIS = (
    "--container-image={image} --container-mounts={mounts} --container-workdir={workdir} --{writable} --{entrypoint}"
)
# In place of a srun with pyxis: notes the options that are pyxis' own, and starts the others' step on the host.
SRUN = """#!/usr/bin/env python3
import os, sys
own = [word for word in sys.argv[1:] if word.startswith(("--container-", "--no-container-"))]
with open({noted!r}, "a") as file:
    file.write(repr(own) + chr(10))
os.execv({srun!r}, ["srun", *[word for word in sys.argv[1:] if word not in own]])
"""


def test_a_site_with_pyxis_is_told_each_word_and_ranks_find_the_variables(job, start, slurm, tmp_path, monkeypatch):
    real = shutil.which("srun", path=slurm.env.get("PATH"))
    noted = tmp_path / "noted"
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/srun").write_text(SRUN.format(noted=str(noted), srun=real))
    (tmp_path / "bin/srun").chmod(0o755)
    (tmp_path / "clusters").mkdir()
    profile = f'[environment]\nengine = "step"\nstep_option = "{PYXIS}"\n'
    (tmp_path / "clusters/slurm.toml").write_text(profile)
    monkeypatch.setenv("CORDEE_CLUSTERS_PATH", str(tmp_path / "clusters"))
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    telling = 'import os\nprint("TOLD", os.environ["FROM_EDF"], flush=True)\n'
    folder = job("python train.py 5 0.02", TOML, telling + COUNTING)
    (folder / "env.toml").write_text(
        f'image = "nvcr.io#nvidia/pytorch:25.01"\nmounts = ["{tmp_path}:{tmp_path}"]\n[env]\nFROM_EDF = "a secret"\n'
    )
    run = start(folder)
    state = run.wait_end()
    assert (state.state, state.restarts) == ("finished", 0), state.text
    assert [run.output(rank).decode().splitlines()[0] for rank in range(4)] == ["TOLD a secret"] * 4
    options = [
        "--container-image=nvcr.io#nvidia/pytorch:25.01",
        f"--container-mounts={tmp_path}:{tmp_path}",
        "--container-writable",
        "--no-container-entrypoint",
    ]
    assert repr(options) in noted.read_text().splitlines()
    assert run.processes() == []
