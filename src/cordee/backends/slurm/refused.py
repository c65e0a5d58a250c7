"""The error that a person sees when Slurm does not take a job: what was given, what is allowed, what to do."""

from __future__ import annotations

import getpass
from collections.abc import Mapping
from typing import Any

from cordee.backends.slurm.node.commands import SlurmError, run_command
from cordee.backends.slurm.refusals import explain_refusal
from cordee.core.errors import SubmitError

_ASSOCIATIONS = "sacctmgr --noheader --parsable2 show associations user={user} format={key}"
_CHOICES = {
    "account": _ASSOCIATIONS,
    "qos": _ASSOCIATIONS,
    "partition": "sinfo --noheader --format=%R",
    "reservation": "sinfo --noheader --reservation --format=%i",
    "constraint": "sinfo --noheader --format=%f",
}
_MOST_CHOICES = 20


def refused(error: SlurmError, run: str, scheduler: Mapping[str, Any]) -> SubmitError:
    """Return the error for what sbatch said.

    Args:
        error: as sbatch failed.
        run: id of the run, which stays and can be submitted again.
        scheduler: account, partition, qos and the like, as the plan asked for them.
    """
    if error.missing:
        return SubmitError(
            "Slurm's commands are not on PATH here", given="sbatch", next="log in to the cluster, or use --on local"
        )
    said = " ".join(error.said.replace("sbatch: error:", "").split()) or "no reason given"
    if error.busy:
        return SubmitError(
            f"Slurm's controller did not take the job: {said}",
            given=run,
            next=f"`cordee resume {run}` submits it once the controller answers; it is never submitted twice",
        )
    known = explain_refusal(said, qos=scheduler.get("qos"), account=scheduler.get("account"))
    if known is None:
        return SubmitError(
            f"Slurm refused the job: {said}", given=run, next="`cordee check` shows the script as sbatch gets it"
        )
    key = known.rule.removeprefix("refused-")
    return SubmitError(
        f"Slurm refused the job: {said} ({known.text})",
        given=scheduler.get(key) or run,
        allowed=_choices(key) or known.allowed,
        next=known.next,
    )


def _choices(key: str) -> list[str]:
    if key not in _CHOICES:
        return []
    argv = [word.format(user=getpass.getuser(), key=key) for word in _CHOICES[key].split()]
    try:
        lines = run_command(argv, timeout_s=10.0).replace(",", "\n").splitlines()
    except (SlurmError, OSError, KeyError):
        return []
    return sorted({line.strip() for line in lines} - {"", "(null)"})[:_MOST_CHOICES]
