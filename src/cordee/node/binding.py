"""Which CPUs each rank that the agent forks may use: those near its GPU, where the job asks for that."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Mapping, Optional, Sequence

from cordee.hardware.affinity import gpu_addresses, places
from cordee.node.launching import RankCommand
from cordee.runs.plan import Step


def bound(ranks: Sequence[RankCommand], step: Step, root: str = "/") -> list[RankCommand]:
    """Return the ranks of a node with the CPUs that they are bound to, and words on why.

    Args:
        ranks: in the order of their local numbers.
        step: of plan.json.
        root: where /sys and /proc are seen.
    """
    tasks = step.tasks
    if tasks.bind != "gpu":
        by_srun = tasks.launch != "fork"
        return [replace(rank, bound="by srun" if by_srun else "not bound: bind is none") for rank in ranks]
    found = places(addresses_of(ranks, gpu_addresses(root)), os.sched_getaffinity(0), root)
    return [replace(rank, cpus=place.cpus, bound=place.words) for rank, place in zip(ranks, found)]


def addresses_of(ranks: Sequence[RankCommand], gpus: Sequence[tuple[str, str]]) -> list[Optional[str]]:
    """Return the PCI address of each rank's GPU: the n-th that is visible is the n-th rank's, as scripts choose it.

    None where that cannot be told: the ranks are not as many as the GPUs that their environment leaves visible.

    Args:
        ranks: in the order of their local numbers.
        gpus: (PCI address, UUID) of the node's GPUs in the order of their addresses.
    """
    found: list[Optional[str]] = []
    for local, rank in enumerate(ranks):
        visible = _visible({**(rank.outside or {}), **rank.env}, gpus)
        if len(visible) == len(ranks):
            found.append(visible[local])
        else:
            found.append(visible[0] if len(visible) == 1 else None)
    return found


def _visible(env: Mapping[str, str], gpus: Sequence[tuple[str, str]]) -> list[str]:
    """Return the addresses of the GPUs that the environment leaves visible, in its order."""
    addresses = [address for address, _ in gpus]
    listed = next((env[name] for name in ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES") if name in env), None)
    # Where a step sees only its own devices, indices count those, from 0; Slurm's list counts the node's.
    slurms = env.get("SLURM_STEP_GPUS", env.get("SLURM_JOB_GPUS", ""))
    of_step = [entry for entry in slurms.split(",") if entry]
    if of_step and listed != slurms and all(part.isdigit() and int(part) < len(addresses) for part in of_step):
        addresses = [addresses[int(part)] for part in of_step]
    if listed is None:
        return addresses
    found = []
    for entry in (part.strip() for part in listed.split(",")):
        by_uuid = [address for address, uuid in gpus if entry.startswith("GPU-") and uuid.startswith(entry)]
        if len(by_uuid) == 1:
            found += by_uuid
        elif entry.isdigit() and int(entry) < len(addresses):
            found.append(addresses[int(entry)])
    return found
