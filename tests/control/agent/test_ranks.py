"""The environment of a rank: what launchers of the field would set, and nothing that another one left."""

from __future__ import annotations

import pytest

from cordee.control.agent.ranks.commands import RankCommands, RankEnvironment
from cordee.control.agent.ranks.environment import base_environment, rank_environment
from cordee.control.world import AttemptWorld
from cordee.machine.slots import AllocatableGpu, Core, NodeSlots, SlotAllocator
from cordee.runs.plan import Checkpoints, RunPlan, RunRequest, RunSampling, RunStep, RunTasks, RunTimeouts


def environment(
    argv: list[str], nodes: int = 2, inherited: dict[str, str] | None = None, **more: object
) -> dict[str, str]:
    names = tuple(f"local-{index}" for index in range(nodes))
    world = AttemptWorld(1, names, ("10.0.0.1",) * nodes, 1, names[-1], nodes - 1, "10.0.0.1", 23456, 23457)
    tasks = RunTasks(tuple(argv), {})._replace(**more)
    step = RunStep(tasks, Checkpoints("/run/checkpoints"), RunRequest(nodes, cpus_per_rank=1))
    timeouts = RunTimeouts(60.0, 1.0, 10.0, 60.0, 2.0, 6.0)
    plan = RunPlan("r", "local", "/job", "/job", "/run", (step,), timeouts, RunSampling(1.0))
    return rank_environment(base_environment(inherited or {}, tasks), plan, world, nodes - 1, "/channel")


@pytest.mark.parametrize(
    "argv",
    [
        ["torchrun", "--nproc-per-node=2", "train.py"],
        ["python", "-m", "torch.distributed.run", "train.py"],
        ["bash", "-c", "cd src && /opt/bin/torchrun train.py"],
    ],
)
def test_torchrun_finds_all_nodes_without_a_flag(argv: list[str]) -> None:
    env = environment(argv)
    found = {key: value for key, value in env.items() if key.startswith("PET_")}
    assert found == {
        "PET_NNODES": "2",
        "PET_NODE_RANK": "1",
        "PET_MASTER_ADDR": "10.0.0.1",
        "PET_MASTER_PORT": "23456",
    }


@pytest.mark.parametrize("argv", [["python", "train.py"], ["torchrun", "--standalone", "train.py"]])
def test_who_does_not_call_torchrun_or_wants_one_node_is_left_alone(argv: list[str]) -> None:
    assert not [key for key in environment(argv) if key.startswith("PET_")]
    assert not [key for key in environment(["torchrun", "train.py"], nodes=1) if key.startswith("PET_")]


def test_variables_of_other_launchers_do_not_reach_a_rank() -> None:
    stale = {
        "PMI_RANK": "3",
        "PMIX_RANK": "3",
        "OMPI_COMM_WORLD_RANK": "3",
        "SLURM_PMIX_MAPPING_SERV": "x",
        "KEPT": "1",
    }
    env = environment(["python", "train.py"], inherited={**stale, "RANK": "7", "SLURM_PROCID": "7"})
    assert env["RANK"] == "1"
    assert env["KEPT"] == "1"
    assert not {"PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PMIX_MAPPING_SERV", "SLURM_PROCID"} & set(env)


def test_only_a_world_of_one_rank_is_left_untold() -> None:
    untold = ("RANK", "WORLD_SIZE")
    alone = environment(["python", "train.py"], nodes=1, untold=untold)
    assert not {*untold} & set(alone)
    assert environment(["python", "train.py"], nodes=2, untold=untold)["WORLD_SIZE"] == "2"


def test_what_a_job_tells_torchrun_itself_goes_first() -> None:
    env = environment(["torchrun", "train.py"], env={"PET_MASTER_PORT": "29500"})
    assert (env["PET_MASTER_PORT"], env["PET_NNODES"]) == ("29500", "2")


class Nowhere:
    """Nothing around ranks, and channels that are never opened."""

    encloses, cwd = False, "/"

    def wrap_rank(self, argv: tuple[str, ...]) -> tuple[str, ...]:
        return argv

    def create(self, attempt: int, rank: int) -> str:
        return "/channel"


@pytest.mark.parametrize(
    ("bind", "more", "threads"),
    [
        ("gpu", {}, ["6", "2"]),  # what each has near its GPU, by whole cores of two CPUs each
        ("none", {}, ["4", "4"]),
        ("gpu", {"cpus_per_rank": 3}, ["3", "3"]),
        ("gpu", {"env": {"OMP_NUM_THREADS": "5"}}, ["5", "5"]),
    ],
)
def test_a_rank_has_as_many_threads_as_cores_unless_the_job_says_how_many(bind, more, threads) -> None:
    cores = tuple(Core(frozenset({core, core + 8}), int(core > 5)) for core in range(8))
    gpus = (
        AllocatableGpu("0", "GPU-0", frozenset({*range(6), *range(8, 14)})),
        AllocatableGpu("1", "GPU-1", frozenset({6, 7, 14, 15})),
    )
    tasks = RunTasks(("python", "train.py"), more.pop("env", {}), bind=bind)
    step = RunStep(tasks, Checkpoints("/run/checkpoints"), RunRequest(1, **more))
    timeouts = RunTimeouts(60.0, 1.0, 10.0, 60.0, 2.0, 6.0)
    plan = RunPlan("r", "slurm", "/job", "/job", "/run", (step,), timeouts, RunSampling(1.0))
    environment = RankEnvironment(lambda: base_environment({}, tasks))
    slots, nowhere = SlotAllocator(lambda: NodeSlots(cores, gpus)), Nowhere()
    commands = RankCommands(plan, nowhere, nowhere, environment, slots, lambda env, rank: env)
    world = AttemptWorld(1, ("n",), ("10.0.0.1",), 2, "n", 0, "10.0.0.1", 23456, 23457)
    assert [rank.env["OMP_NUM_THREADS"] for rank in commands.of(world)] == threads
