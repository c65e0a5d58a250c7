"""How the ranks of an attempt come to life on a node: forked by the agent, or started by srun for MPI."""

from __future__ import annotations

from cordee.control.launch._base import Launch, LaunchHost, RankCommand
from cordee.control.launch.fork import ForkLaunch
from cordee.control.launch.srun.launcher import SrunLaunch
from cordee.control.world import AttemptWorld
from cordee.core.parts import load
from cordee.runs.plan import RunPlan, part_in

# In `node_parts` of the plan, before a kind of launch that is not one of ours.
PORT = "launch/"
__all__ = ["ForkLaunch", "Launch", "PORT", "LaunchHost", "RankCommand", "SrunLaunch", "make_launch"]


def make_launch(kind: str, host: LaunchHost, plan: RunPlan, world: AttemptWorld) -> Launch:
    """Return the launch of one attempt on this node.

    Args:
        kind: `fork`, `srun`, or one that a system brings.

    Raises:
        CordeeError: the plan names no part for it.
    """
    if kind in ("fork", "srun"):
        return SrunLaunch(host, plan, world) if kind == "srun" else ForkLaunch(host, world)
    launch: Launch = load(part_in(plan.node_parts, PORT + kind))(host, plan, world)
    return launch
