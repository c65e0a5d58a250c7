"""Whether the ranks learn of their world what the job and its script expect."""

from __future__ import annotations

from cordee.client.variables import DISTRIBUTED, WORLD
from cordee.core.backends import abilities
from cordee.core.findings import Finding
from cordee.job.findings import Saying
from cordee.job.load import LoadedJob
from cordee.job.plan.model import Plan
from cordee.job.scripts import launches_itself, read_script, script_of

_INSTEAD = {
    "MASTER_ADDR": "remove it; network_interface in the cluster's profile chooses the network between nodes",
    "MASTER_PORT": "remove it: every attempt gets a free port",
}
_JOINS = "torch.distributed.init_process_group"


def examine_world(loaded: LoadedJob, plan: Plan) -> list[Finding]:
    """Return the findings on variables of the world in `[env]`, and on a script that wants a world and gets none."""
    saying = Saying(loaded)
    told = {name for name in WORLD if name not in plan.step.tasks.untold}
    told.update(abilities(plan.backend).rank_variables)
    for name, value in loaded.job.env.items():
        if name in told:
            text = f"{name} of [env] cannot be used: Cordée sets it for every rank"
            what = _INSTEAD.get(name, "remove it")
            saying.error(f"env.{name}", "not-honoured", text, given=f"{name}={value}", next=what)
    _no_world(loaded, plan, saying)
    return saying.findings


def _no_world(loaded: LoadedJob, plan: Plan, saying: Saying) -> None:
    """Say that a script which does not ask whether there is a world will find none."""
    name = script_of(loaded.job.run)
    if not plan.step.tasks.untold or name is None or launches_itself(loaded.job.run):
        return
    script = read_script(loaded.folder / name, loaded.folder)
    wanted = sorted(script.needs & set(DISTRIBUTED) - set(loaded.job.env))
    if _JOINS in script.calls and "RANK" not in loaded.job.env:
        wanted = wanted or ["RANK"]
    if wanted and not script.asks & set(DISTRIBUTED):
        text = f"the script wants {wanted[0]}, which one rank without GPUs does not get"
        what = "add ranks_per_node = 1 to [need]: a number that is given makes a world, also of one rank"
        saying.warn("need.ranks_per_node", "no-world", text, given=name, next=what)
