"""Which place a run's plan stands for, by the name of its back end."""

from __future__ import annotations

from typing import Any

from cordee.errors import CordeeError
from cordee.runs.folder import RunFolder
from cordee.backends.allocation import LocalPlace, Place


def place_of(folder: RunFolder, plan: dict[str, Any]) -> Place:
    """Return the place that the plan's back end stands for.

    Raises:
        CordeeError: this version has no such back end.
    """
    if plan["backend"] == "local":
        return LocalPlace(folder, plan)
    if plan["backend"] == "slurm":
        from cordee.backends.slurm.node.allocation import SlurmPlace

        return SlurmPlace(folder, plan)
    raise CordeeError(
        "this plan is for a back end that this version lacks", given=plan["backend"], allowed=["local", "slurm"]
    )
