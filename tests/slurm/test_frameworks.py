"""What people run: torch, JAX, Lightning, torchrun and MPI each find all ranks of a run, however the ranks are started."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cordee.core.errors import DocumentError
from cordee.machine.processes.tree import Process, read_process

PROGRAMS = Path(__file__).parent / "programs"
NODES, PER_NODE = 2, 2
WORLD = NODES * PER_NODE
RANKS = range(WORLD)
NEED = f"[need]\nnodes = {NODES}\nranks_per_node = {PER_NODE}\n"
# Nodes that share a machine would take each other's shared memory for their own.
MPI = NEED + '[env]\nOMPI_MCA_btl = "self,tcp"\nOMPI_MCA_btl_tcp_if_include = "lo"\n[slurm]\nmpi = "pmix"\n'
WAIT_S = 240.0
DEAD = Process(0, 0, 0, 0, "X", 0)


@pytest.fixture
def program(job) -> Callable[..., Path]:
    """Make a job of one of the programs: `program(name, arguments, toml, launch)`."""

    def write(name: str, arguments: str = "", toml: str = NEED, launch: str = "fork") -> Path:
        folder = job(f"{sys.executable} {name} {arguments}", f'launch = "{launch}"\n{toml}')
        shutil.copy(PROGRAMS / name, folder)
        return folder

    return write


@pytest.fixture
def hello(job) -> Callable[..., Path]:
    """Make a job of the MPI program: `hello(arguments)`."""

    def write(arguments: str = "") -> Path:
        folder = job(f"./hello {arguments}", f'launch = "srun"\n{MPI}')
        subprocess.run(["mpicc", str(PROGRAMS / "hello_mpi.c"), "-o", str(folder / "hello")], check=True)
        return folder

    return write


def said(run, rank: int, word: str) -> list[str]:
    """Return the words behind `word` in the last line of a rank that begins with it."""
    lines = [line.split() for line in run.output(rank).decode(errors="replace").splitlines()]
    return next((line[1:] for line in reversed(lines) if line[:1] == [word]), [])


def finish(run) -> None:
    state = run.wait_end(WAIT_S)
    assert (state.state, state.exit_code) == ("finished", 0), (
        state.text,
        run.output().decode(errors="replace")[-4000:],
    )


@pytest.mark.parametrize(
    ("launch", "per_node"),
    [("fork", 1), *(pytest.param(launch, PER_NODE, marks=pytest.mark.campaign) for launch in ("fork", "srun"))],
)
def test_torch_ddp_averages_over_all_ranks(program, start, launch: str, per_node: int) -> None:
    toml = f"[need]\nnodes = {NODES}\nranks_per_node = {per_node}\n"
    run = start(program("ddp.py", toml=toml, launch=launch))
    finish(run)
    world = NODES * per_node
    for rank in range(world):
        assert said(run, rank, "ddp") == [str(rank), str(world), str(rank % per_node), str((world + 1) / 2)]


@pytest.mark.campaign
@pytest.mark.parametrize("launch", ["fork", "srun"])
def test_jax_finds_its_world_without_arguments(program, start, launch: str) -> None:
    run = start(program("jax_world.py", launch=launch))
    finish(run)
    for rank in RANKS:
        assert said(run, rank, "jax") == [str(rank), str(WORLD), str(WORLD * (WORLD + 1) // 2)]


def fitted(run, word: str = "lightning") -> None:
    """Assert that every rank of the run was found in the variables of Slurm."""
    for rank in RANKS:
        node, local = divmod(rank, PER_NODE)
        assert said(run, rank, word)[:4] == [str(rank), str(WORLD), str(local), str(node)]
        assert word != "lightning" or said(run, rank, word)[4:] == ["SLURMEnvironment"]


@pytest.mark.campaign
def test_lightning_takes_the_ranks_of_srun_for_those_of_slurm(program, start) -> None:
    run = start(program("lightning_fit.py", f"{NODES} {PER_NODE}", launch="srun"))
    finish(run)
    fitted(run)


@pytest.mark.parametrize("name", ["slurm_world.py", pytest.param("lightning_fit.py", marks=pytest.mark.campaign)])
def test_a_node_that_is_left_out_is_in_nobodys_world(program, start, slurm, name: str) -> None:
    """Vetting finds no tool on n2, so that the ranks, which agents start, are on two of the other three."""
    toml = NEED.replace("[need]", "[need]\nspare_nodes = 2") + '[vet]\ncommands = ["not-on-n2"]\n'
    setup = 'setup = [\'[ "$SLURMD_NODENAME" = n2 ] || export PATH="$PWD/tools:$PATH"\']\n'
    folder = program(name, f"{NODES} {PER_NODE}", toml=setup + toml)
    tool = folder / "tools" / "not-on-n2"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    run = start(folder)
    finish(run)
    chosen = run.events("nodes_chosen")[-1]["nodes"]
    assert len(chosen) == 2
    assert "n2" not in chosen
    fitted(run, "lightning" if name == "lightning_fit.py" else "slurm")


@pytest.mark.campaign
def test_torchrun_makes_one_world_of_all_nodes(job, start) -> None:
    torchrun = Path(sys.executable).parent / "torchrun"
    folder = job(f"{torchrun} --nproc-per-node={PER_NODE} torchrun_world.py", f"[need]\nnodes = {NODES}\n")
    shutil.copy(PROGRAMS / "torchrun_world.py", folder)
    run = start(folder)
    finish(run)
    lines = [line.split()[1:] for line in run.output().decode(errors="replace").splitlines() if "torchrun " in line]
    total = str(WORLD * (WORLD + 1) // 2)
    assert sorted(lines) == [[str(rank), str(WORLD), str(rank // PER_NODE), total] for rank in RANKS]


def test_an_mpi_program_has_one_world_and_each_rank_its_own_lines(hello, start) -> None:
    run = start(hello())
    finish(run)
    for rank in RANKS:
        assert run.output(rank).decode() == f"mpi {rank} {WORLD} {sum(RANKS)} {rank}\n"


@pytest.mark.gate
def test_a_failing_mpi_rank_is_named_and_the_others_end_with_it(hello, start) -> None:
    run = start(hello("2"), restart__retries=0)
    state = run.wait_end(WAIT_S)
    assert (state.state, state.exit_code) == ("failed", 7)
    node = sorted(each.node for each in state.nodes)[1]
    assert (
        state.text
        == f"failed after 1 attempt; no retries left (retries = 0): rank 2 on {node} exited with code 7: rank 2 gives up"
    )
    assert run.processes() == []


def test_a_kind_of_mpi_that_slurm_does_not_have_is_refused_before_submission(hello, start) -> None:
    with pytest.raises(DocumentError, match="no MPI of kind none-such") as refused:
        start(hello(), slurm__mpi="none-such")
    assert "pmix" in refused.value.allowed


@pytest.mark.parametrize(
    "part", ["srun", "supervisor", *(pytest.param(part, marks=pytest.mark.campaign) for part in ("agent", "rank 3"))]
)
def test_ranks_of_srun_come_back_after_a_kill_and_none_is_left(job, start, training, part: str) -> None:
    run = start(job(training.run, f'launch = "srun"\n{NEED}'))
    run.wait(lambda state: (state.step or 0) > 20 and state.checkpoint is not None)
    before = {rank.rank: int(rank.pid or 0) for rank in run.state.ranks}
    if part == "srun":
        os.kill(srun_of(run), 9)
    else:
        run.kill(f"agent {nodes_of(run)[1]}" if part == "agent" else part)
    run.wait(lambda state: state.attempt == 2 and len(state.ranks) == WORLD, WAIT_S)
    run.wait_training(2, WAIT_S)
    training.may_end()
    after = {rank.rank: int(rank.pid or 0) for rank in run.state.ranks}
    assert not set(before.values()) & set(after.values())
    assert not [pid for pid in before.values() if (read_process(pid) or DEAD).state not in ("Z", "X")]
    finish(run)
    assert b"counted to 60" in run.output(0)
    assert run.processes() == []


def test_an_mpi_run_is_cancelled_at_one_agreed_step(job, start) -> None:
    run = start(job("python train.py 100000 0.02", f'launch = "srun"\n{NEED}'))
    run.wait(lambda state: (state.step or 0) > 20, WAIT_S)
    from cordee.faces.cli.follow import request_cancel

    request_cancel(run.folder, by="the test")
    state = run.wait_end(WAIT_S)
    assert state.state == "cancelled"
    agreed = run.events("stop_agreed")[0]["step"]
    for rank in RANKS:
        assert f"stopped at {agreed}".encode() in run.output(rank)
    assert run.processes() == []


def nodes_of(run) -> list[str]:
    """Return the run's nodes in the order of their ranks; agents may have come in another."""
    return sorted(node.node for node in run.state.nodes)


def srun_of(run) -> int:
    """Return the pid of the srun that started the ranks: the child of an agent that is called srun."""
    deadline = time.monotonic() + WAIT_S
    agent = run.pid(f"agent {nodes_of(run)[0]}")
    while time.monotonic() < deadline:
        for pid in run.processes():
            try:
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            parent = (read_process(pid) or DEAD).parent
            if words[0].endswith(b"srun") and b"--distribution=block" in words and parent == agent:
                return pid
    raise AssertionError("no srun starts ranks")
