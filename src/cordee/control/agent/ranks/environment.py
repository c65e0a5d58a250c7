"""The environment and command of a rank: every variable that launchers of the field would set, and no stale one."""

from __future__ import annotations

import json
import os
from typing import Mapping, Optional, Sequence

from cordee.client.variables import WORLD
from cordee.control.agent.enclosure import Enclosure
from cordee.control.world import AttemptWorld
from cordee.core.backends import backend_on_node
from cordee.core.parts import load
from cordee.runs.plan import Checkpoints, RunPlan, RunStep, RunTasks

_TF_CONFIG_MOST_RANKS = 512
_STALE_PREFIXES = ("PMI_", "PMI2_", "PMIX_", "OMPI_", "PRTE_", "PALS_", "HYDI_", "TORCHELASTIC_", "SLURM_PMIX")
_STALE = frozenset(
    [
        *WORLD,
        "ROLE_RANK",
        "ROLE_WORLD_SIZE",
        "SLURM_PROCID",
        "SLURM_LOCALID",
        "SLURM_NODEID",
        "SLURM_NTASKS",
        "SLURM_NPROCS",
        "SLURM_NTASKS_PER_NODE",
        "SLURM_TASKS_PER_NODE",
        "SLURM_STEP_ID",
        "SLURM_STEPID",
        "SLURM_STEP_NUM_TASKS",
        "SLURM_STEP_NUM_NODES",
        "SLURM_STEP_TASKS_PER_NODE",
        "SLURM_STEP_NODELIST",
        "SLURM_GTIDS",
        "SLURM_TASK_PID",
        "SLURM_STEP_LAUNCHER_PORT",
        "SLURM_SRUN_COMM_HOST",
        "SLURM_SRUN_COMM_PORT",
        "SLURM_LAUNCH_NODE_IPADDR",
        "SLURM_MPI_TYPE",
        "SLURM_CPUS_PER_TASK",
        "SLURM_TRES_PER_TASK",
        "SLURM_CPU_BIND",
        "SLURM_CPU_BIND_LIST",
        "SLURM_CPU_BIND_TYPE",
        "SLURM_CPU_BIND_VERBOSE",
        "SLURM_DISTRIBUTION",
        "CORDEE_CHANNEL",
        "CORDEE_ADAPTERS",
        "CORDEE_PULSE",
        "CORDEE_SEED",
        "CORDEE_DETERMINISTIC",
        "CORDEE_RESUME_FROM",
    ]
)


def base_environment(
    inherited: Mapping[str, str], tasks: Optional[RunTasks] = None, enclosure: Optional[Enclosure] = None
) -> dict[str, str]:
    """Return the environment that set-up lines and ranks begin with.

    It is inherited, cleaned, then what the container's image and EDF say, then the job's own.
    """
    env = {
        key: value
        for key, value in inherited.items()
        if key not in _STALE and not key.startswith(_STALE_PREFIXES) and key != "CORDEE_TASK"
    }
    if enclosure is not None:
        env = enclosure.variables(env)
    if tasks is not None:
        if tasks.path_prepend:
            env["PATH"] = os.pathsep.join([*tasks.path_prepend, env.get("PATH", os.defpath)])
        env.update(tasks.env)
    return env


def rank_environment(
    base: Mapping[str, str],
    plan: RunPlan,
    world: AttemptWorld,
    rank: int,
    channel: str,
) -> dict[str, str]:
    """Return the whole environment of one rank.

    Args:
        base: what the set-up lines left, or `base_environment`.
        plan: the run's.
        world: this attempt's world on this node.
        rank: the global rank.
        channel: path of the rank's channel file.
    """
    step = plan.step
    untold = step.tasks.untold if world.size == 1 else ()
    told = _world_environment(world, rank)
    env = {**base, **{name: value for name, value in told.items() if name not in untold}}
    beside = backend_on_node(plan.backend, plan.backend_part).rank_environment
    if beside is not None and step.tasks.launch == "fork":
        env.update(load(beside)(base, world, rank, step.request.cpus_per_rank))
    if len(world.nodes) > 1:
        env.update({**_torchrun_environment(step.tasks.argv, world), **_own_torchrun(step)})
    env.update(_cordee_environment(plan, world, channel, base))
    env.setdefault("PYTHONUNBUFFERED", "1")
    return env


def rank_command(step: RunStep, world: AttemptWorld) -> tuple[str, ...]:
    """Return argv of a rank, with the resume arguments when there is a checkpoint to go on from; that of a pool is of no task."""
    argv = list(step.tasks.argv)
    resume = step.checkpoint.resume
    if resume and resume != "self" and world.resume_from and step.tasks.launch != "tasks":
        argv += [part.replace("{checkpoint}", world.resume_from) for part in resume]
    return tuple(argv)


def _world_environment(world: AttemptWorld, rank: int) -> dict[str, str]:
    """Return what torch, JAX and TensorFlow read of the world."""
    told = {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank - world.local_ranks.start),
        "WORLD_SIZE": str(world.size),
        "LOCAL_WORLD_SIZE": str(world.ranks_per_node),
        "GROUP_RANK": str(world.node_rank),
        "GROUP_WORLD_SIZE": str(len(world.nodes)),
        "NODE_RANK": str(world.node_rank),
        "MASTER_ADDR": world.master_address,
        "MASTER_PORT": str(world.master_port),
        "JAX_COORDINATOR_ADDRESS": f"{world.master_address}:{world.coordinator_port}",
        "JAX_NUM_PROCESSES": str(world.size),
        "JAX_PROCESS_ID": str(rank),
    }
    if world.size <= _TF_CONFIG_MOST_RANKS:
        told["TF_CONFIG"] = _tf_config(world, rank)
    return told


def _cordee_environment(plan: RunPlan, world: AttemptWorld, channel: str, base: Mapping[str, str]) -> dict[str, str]:
    node_zip = os.path.join(plan.folder, "node.zip")
    previous = base.get("PYTHONPATH", "").split(os.pathsep)
    paths = [node_zip] + [path for path in previous if path and path != node_zip]
    env = {
        "CORDEE_RUN_ID": plan.run,
        "CORDEE_RUN_DIR": plan.folder,
        "CORDEE_NODE": world.node,
        "CORDEE_ATTEMPT": str(world.attempt),
        "CORDEE_EPOCH": str(world.epoch),
        "CORDEE_CHANNEL": channel,
        "CORDEE_CHECKPOINT_DIR": plan.step.checkpoint.path,
        "PYTHONPATH": os.pathsep.join(paths),
    }
    adapters = plan.metrics.adapters
    if adapters:
        env["CORDEE_ADAPTERS"] = ",".join(adapters)
    if world.resume_from:
        env["CORDEE_RESUME_FROM"] = world.resume_from
    return {**env, **_checkpoint_environment(plan.step.checkpoint)}


def _checkpoint_environment(policy: Checkpoints) -> dict[str, str]:
    """Return what `cordee.checkpointer` does where the script does not say it."""
    env = {"CORDEE_CHECKPOINT_KEEP": str(policy.keep)}
    if policy.every_s:
        env["CORDEE_CHECKPOINT_EVERY"] = str(policy.every_s)
    if policy.milestones:
        env["CORDEE_CHECKPOINT_MILESTONES"] = str(policy.milestones)
    if policy.asynchronous:
        env.update(CORDEE_CHECKPOINT_ASYNCHRONOUS="1", CORDEE_CHECKPOINT_PACE=str(policy.pace))
        env["CORDEE_CHECKPOINT_TIERS"] = ",".join(policy.tiers)
    return env


def _torchrun_environment(argv: Sequence[str], world: AttemptWorld) -> dict[str, str]:
    """Return torchrun's own defaults for a command that calls it: one world over all nodes, where flags say nothing."""
    words = " ".join(argv).split()
    called = any(os.path.basename(word) == "torchrun" or word == "torch.distributed.run" for word in words)
    if not called or "--standalone" in words:
        return {}
    return {
        "PET_NNODES": str(len(world.nodes)),
        "PET_NODE_RANK": str(world.node_rank),
        "PET_MASTER_ADDR": world.master_address,
        "PET_MASTER_PORT": str(world.master_port),
    }


def _own_torchrun(step: RunStep) -> dict[str, str]:
    """Return what the job itself tells torchrun."""
    return {name: value for name, value in step.tasks.env.items() if name.startswith("PET_")}


def _tf_config(world: AttemptWorld, rank: int) -> str:
    workers = [
        f"{address}:{world.coordinator_port + 1 + index * world.ranks_per_node + local}"
        for index, address in enumerate(world.addresses)
        for local in range(world.ranks_per_node)
    ]
    return json.dumps({"cluster": {"worker": workers}, "task": {"type": "worker", "index": rank}})


def threads_of_rank(plan: RunPlan, world: AttemptWorld, given: int, cores: int) -> int:
    """Return how many threads a rank is for: the CPUs that the job asks for, else the cores that it has, or its share of them.

    Args:
        plan: the run's.
        world: this attempt's world on this node.
        given: whole cores that were given to it; 0: none in particular.
        cores: of the node that its ranks may use.
    """
    apart = backend_on_node(plan.backend, plan.backend_part).abilities.several_machines
    sharing = world.ranks_per_node * (1 if apart else len(world.nodes))
    return plan.step.request.cpus_per_rank or given or max(1, cores // sharing)
