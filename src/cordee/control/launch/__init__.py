"""How the ranks of an attempt come to life on a node: forked by the agent, or started by srun for MPI."""

from __future__ import annotations

from cordee.control.launch._base import Launch, LaunchHost, RankCommand
from cordee.control.launch.fork import ForkLaunch
from cordee.control.launch.srun.launcher import SrunLaunch
from cordee.control.world import AttemptWorld
from cordee.runs.plan import RunPlan

__all__ = ["ForkLaunch", "Launch", "LaunchHost", "RankCommand", "SrunLaunch", "make_launch"]


def make_launch(kind: str, host: LaunchHost, plan: RunPlan, world: AttemptWorld) -> Launch:
    """Return the launch of one attempt on this node; `kind` is what `launch` says in the job document."""
    return SrunLaunch(host, plan, world) if kind == "srun" else ForkLaunch(host, world)
