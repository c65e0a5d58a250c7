"""The srun that starts the ranks of an attempt, and the environment that it runs in."""

from __future__ import annotations

from pathlib import Path
from typing import Mapping

from cordee.control.world import AttemptWorld
from cordee.core.hostlist import fold_nodes
from cordee.machine.processes.module_command import module_argv
from cordee.runs.plan import RunStep

# What srun would take for options of its own, were it to find them: they were meant for the agents' srun, or the job's.
_OPTIONS_OF_OTHERS = frozenset(
    "SLURM_" + name
    for name in (
        "CPUS_PER_GPU",
        "CPUS_PER_TASK",
        "EXACT",
        "EXCLUSIVE",
        "EXPORT_ENV",
        "HINT",
        "KILL_BAD_EXIT",
        "LABELIO",
        "MEM_PER_CPU",
        "MEM_PER_GPU",
        "MEM_PER_NODE",
        "MULTI_PROG",
        "NO_KILL",
        "OVERCOMMIT",
        "OVERLAP",
        "STDERRMODE",
        "STDINMODE",
        "STDOUTMODE",
        "TRES_PER_TASK",
        "UNBUFFEREDIO",
        "WAIT",
    )
)


def srun_command(step: RunStep, world: AttemptWorld, meeting_places: Path) -> tuple[str, ...]:
    """Return argv of the one srun that places all ranks of an attempt.

    It shares the allocation with the agents (`--overlap`), and it neither ends the other ranks when one fails nor gives
    up when a node does: that is for the supervisor to decide, which gives them time to save.

    Args:
        step: of plan.json.
        world: the attempt's world.
        meeting_places: the folder that holds `<node>/` on every node.
    """
    options = [
        "--overlap",
        f"--nodes={len(world.nodes)}",
        f"--ntasks={world.size}",
        f"--ntasks-per-node={world.ranks_per_node}",
        f"--nodelist={fold_nodes(world.nodes)}",
        "--distribution=block",
        "--kill-on-bad-exit=0",
        "--no-kill",
        "--wait=0",
        "--mem=0",
        "--input=none",
        "--export=ALL",
    ]
    if step.tasks.mpi:
        options.append(f"--mpi={step.tasks.mpi}")
    if step.request.cpus_per_rank:
        options.append(f"--cpus-per-task={step.request.cpus_per_rank}")
    rank = module_argv("cordee.control.launch.srun.rank", str(meeting_places), str(world.attempt))
    return ("srun", *options, *rank)


def srun_environment(rank: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of srun: that of a rank, without what would change srun's mind or its Python's home."""
    return {key: value for key, value in rank.items() if key not in _OPTIONS_OF_OTHERS and key != "PYTHONHOME"}
