"""An ended run goes on with another number of nodes or ranks: its plan and its script are written again."""

from __future__ import annotations

import json
import time
from typing import Any

from cordee.core.backends import abilities
from cordee.core.errors import UsageError
from cordee.job.plan.model import Plan
from cordee.job.submit import plan_of, submitter
from cordee.job.submit._base import Submitter
from cordee.runs.folder import RunFolder, write_atomically

_ENDING_S = 120.0
_POLL_S = 0.1


def resize(folder: RunFolder, nodes: int | None, ranks_per_node: int | None) -> dict[str, Any]:
    """Change how many nodes and ranks a run asks for and return what changed, as the journal keeps it.

    Everything else stays as it was planned: memory, time and limits are asked of the scheduler as before, and it refuses
    what it cannot give.

    Raises:
        UsageError: ranks have the node's GPUs and their number cannot change, one machine is no place for so many nodes, or
            the run's processes do not end.
    """
    document = plan_of(folder)
    plan = Plan.model_validate({"schema_": document.pop("schema"), **document})
    request = plan.step.request
    wanted = {"nodes": nodes or request.nodes, "ranks_per_node": ranks_per_node or request.ranks_per_node}
    changed = {key: value for key, value in wanted.items() if value != getattr(request, key)}
    if not changed:
        return {}
    if "ranks_per_node" in changed and request.gpus_per_node:
        raise UsageError(
            "the ranks of a node are given its GPUs, so that their number stays",
            given=f"--ranks-per-node {ranks_per_node}",
            allowed=f"{request.ranks_per_node}, as planned for {request.gpus_per_node} GPUs on each node",
            next="change the number of nodes: --nodes N",
        )
    most = abilities(plan.backend).most_nodes
    if most is not None and wanted["nodes"] + request.spare_nodes > most:
        raise UsageError(
            "these are too many nodes for one machine",
            given=f"--nodes {nodes}",
            allowed=f"at most {most}, with the spares",
        )
    least = wanted["nodes"] if request.min_nodes == request.nodes else min(request.min_nodes, wanted["nodes"])
    step = plan.step.model_copy(update={"request": request.model_copy(update={**wanted, "min_nodes": least})})
    plan = plan.model_copy(update={"steps": (step,)})
    back_end = submitter(plan.backend)
    _wait_until_gone(back_end, folder)
    write_atomically(folder.submit / back_end.script_name, back_end.script(folder, plan.document()))
    write_atomically(folder.plan, json.dumps(plan.document(), indent=1))
    return {key: wanted[key] for key in ("nodes", "ranks_per_node")}


def _wait_until_gone(back_end: Submitter, folder: RunFolder) -> None:
    """Wait for what still seals and reports the run: it has read the plan as it was."""
    deadline = time.monotonic() + _ENDING_S
    while back_end.standing(folder, age_s=0.0).state != "gone":
        if time.monotonic() > deadline:
            raise UsageError("the run's processes are still ending", given=folder.id, next="repeat the command later")
        time.sleep(max(_POLL_S, back_end.poll_s / 10))
