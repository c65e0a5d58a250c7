"""What Slurm's variables say to forked ranks, against what a real srun set; both were recorded from Slurm 22.05.

The job had n[1-3] with four CPUs each. The agents ran on all of them; the other step ran on n1 and n3, with two ranks of
two CPUs on each, as a run does whose vetting left n2 out.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cordee.backends.slurm.node.world import fold_counts, slurm_environment
from cordee.client.variables import SLURM_WORLD
from cordee.control.agent.ranks.environment import base_environment, rank_environment
from cordee.control.world import AttemptWorld
from cordee.core.hostlist import expand_nodes, fold_nodes
from cordee.runs.plan import Checkpoints, RunPlan, RunRequest, RunSampling, RunStep, RunTasks, RunTimeouts

RECORDED = Path(__file__).parent / "recorded"
WORLD = AttemptWorld(1, ("n1", "n3"), ("10.0.0.1", "10.0.0.3"), 2, "n3", 1, "10.0.0.1", 23456, 23457)
# Of the process manager, the step's own connection, or the process itself: nothing that a forked rank has.
NOT_OURS = {
    "SLURM_LAUNCH_NODE_IPADDR",
    "SLURM_SRUN_COMM_HOST",
    "SLURM_SRUN_COMM_PORT",
    "SLURM_STEPID",
    "SLURM_STEP_ID",
    "SLURM_STEP_LAUNCHER_PORT",
    "SLURM_TASK_PID",
}
# srun leaves these as the job has them; ours know of no node that was left out.
OF_THIS_WORLD = {
    "SLURM_JOB_CPUS_PER_NODE": "4(x2)",
    "SLURM_JOB_NODELIST": "n[1,3]",
    "SLURM_JOB_NUM_NODES": "2",
    "SLURM_NODELIST": "n[1,3]",
}


def recorded(name: str) -> dict[str, str]:
    lines = (RECORDED / f"slurm-22.05-{name}.env").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines)


def environment(inherited: dict[str, str], launch: str = "fork", **request: Any) -> dict[str, str]:
    tasks = RunTasks(("python", "train.py"), {}, launch)
    step = RunStep(tasks, Checkpoints("/run/checkpoints"), RunRequest(**{"cpus_per_rank": 2, **request}))
    timeouts = RunTimeouts(60.0, 1.0, 10.0, 60.0, 2.0, 6.0)
    plan = RunPlan("r", "slurm", "/job", "/job", "/run", (step,), timeouts, RunSampling(1.0))
    env = rank_environment(base_environment(inherited, tasks), plan, WORLD, 3, "/channel")
    return {key: value for key, value in env.items() if key.startswith("SLURM")}


def test_a_forked_rank_sees_what_srun_would_have_set() -> None:
    expected = {key: value for key, value in recorded("direct").items() if key not in NOT_OURS}
    assert environment(recorded("agent")) == {**expected, **OF_THIS_WORLD}


def test_the_cpus_of_the_agent_are_not_taken_for_those_of_a_rank() -> None:
    assert "SLURM_CPUS_PER_TASK" not in environment(recorded("agent"), cpus_per_rank=None)


def test_a_requeued_job_still_counts_its_restarts_and_keeps_its_name() -> None:
    env = environment({**recorded("agent"), "SLURM_RESTART_COUNT": "2"})
    assert (env["SLURM_RESTART_COUNT"], env["SLURM_JOB_NAME"]) == ("2", "train")
    assert env["SLURM_GPUS_ON_NODE"] == "2"


def test_where_srun_starts_the_ranks_it_sets_their_variables_itself() -> None:
    env = environment(recorded("agent"), launch="srun")
    assert not {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_STEP_NODELIST", "SLURM_CPU_BIND"} & set(env)
    assert env["SLURM_JOB_NODELIST"] == "n[1-3]"


@pytest.mark.parametrize(
    ("cpus", "nodes", "expected"),
    [
        ("4(x3)", "n[1-3]", "4(x2)"),
        ("4,8(x2)", "n[1-3]", "4,8"),
        ("4(x2),16", "n[1-3]", "4,16"),
        ("4", "n1", None),
        ("", "", None),
        ("4(x3)", "n[1-", None),
    ],
)
def test_cpus_per_node_are_those_of_the_nodes_in_use(cpus: str, nodes: str, expected: str | None) -> None:
    base = {"SLURM_JOB_CPUS_PER_NODE": cpus, "SLURM_JOB_NODELIST": nodes}
    assert slurm_environment(base, WORLD, 2, None).get("SLURM_JOB_CPUS_PER_NODE") == expected


def test_counts_are_folded_in_their_order() -> None:
    assert fold_counts([4, 4, 8, 4]) == "4(x2),8,4"


@pytest.mark.parametrize(
    "folded",
    [
        "n1",
        "n[1,3]",
        "n[1-3]",
        "n[9-11]",
        "n[08-10,12]",
        "login1,n[1-2],x",
        "nid[000099-000100]",
        "c1-b[1-2],c2-b1",
        "n[3,1]",
    ],
)
def test_names_are_folded_as_slurm_folds_them(folded: str) -> None:
    assert fold_nodes(expand_nodes(folded)) == folded


def test_what_is_said_of_slurms_world_is_what_env_cannot_say() -> None:
    assert set(slurm_environment({}, WORLD, 2, None)) == set(SLURM_WORLD)
