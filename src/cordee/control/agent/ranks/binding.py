"""What each rank that the agent forks is given of its node: CPUs near its GPU, where the job asks for that."""

from __future__ import annotations

from dataclasses import replace
from typing import Mapping, Optional, Sequence

from cordee.control.launch import RankCommand
from cordee.machine.gpus.presence import listed
from cordee.machine.slots import AllocatableGpu, Given, SlotAllocator
from cordee.runs.plan import RunStep


def bound(ranks: Sequence[RankCommand], step: RunStep, attempt: int, slots: SlotAllocator) -> list[RankCommand]:
    """Return the ranks of a node with what they were given, which `slot_of` names until it is taken back.

    Args:
        ranks: in the order of their local numbers.
        step: of plan.json.
        attempt: that they are of.
        slots: the node's.

    Raises:
        CannotGive: another holds what they need.
    """
    tasks = step.tasks
    if tasks.bind != "gpu":
        words = "by srun" if tasks.launch != "fork" else "not bound: bind is none"
        return [replace(rank, given=Given(words=words)) for rank in ranks]
    slots.look_again()
    asks = {
        slot_of(attempt, rank.rank): () if device is None else (device,)
        for rank, device in zip(ranks, devices_of(ranks, slots.has.gpus))
    }
    given = slots.give(asks)
    return [replace(rank, given=given[slot_of(attempt, rank.rank)]) for rank in ranks]


def slot_of(attempt: int, rank: int) -> str:
    """Return the name under which a rank holds what it was given."""
    return f"rank-{attempt}-{rank}"


def devices_of(ranks: Sequence[RankCommand], gpus: Sequence[AllocatableGpu]) -> list[Optional[str]]:
    """Return each rank's GPU, or instance of one: the n-th that is visible is the n-th rank's, as scripts choose it.

    None where that cannot be told: the ranks are not as many as the GPUs that their environment leaves visible.

    Args:
        ranks: in the order of their local numbers.
        gpus: of the node, in the order of their addresses.
    """
    found: list[Optional[str]] = []
    for local, rank in enumerate(ranks):
        visible = _visible({**(rank.outside or {}), **rank.env}, gpus)
        if len(visible) == len(ranks):
            found.append(visible[local])
        else:
            found.append(visible[0] if len(visible) == 1 else None)
    return found


def _visible(env: Mapping[str, str], gpus: Sequence[AllocatableGpu]) -> list[str]:
    """Return the names of the GPUs that the environment leaves visible, in its order."""
    names = [gpu.name for gpu in gpus]
    given = listed(env)
    # Where a step sees only its own devices, indices count those, from 0; Slurm's list counts the node's.
    slurms = env.get("SLURM_STEP_GPUS", env.get("SLURM_JOB_GPUS", ""))
    of_step = [entry for entry in slurms.split(",") if entry]
    if (
        of_step
        and (given is None or given.text != slurms)
        and all(part.isdigit() and int(part) < len(names) for part in of_step)
    ):
        names = [names[int(part)] for part in of_step]
    if given is None:
        return names
    uuids = [uuid for gpu in gpus for uuid in (gpu.uuid, *(part.uuid for part in gpu.instances)) if uuid]
    found = []
    for entry in given.entries:
        by_uuid = [uuid for uuid in uuids if entry.startswith(("GPU-", "MIG-")) and uuid.startswith(entry)]
        if len(by_uuid) == 1:
            found += by_uuid
        elif entry.isdigit() and int(entry) < len(names):
            found.append(names[int(entry)])
    return found
