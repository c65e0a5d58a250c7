"""What Slurm says when it refuses a job, and what a person can do about it."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from cordee.errors import SubmitError
from cordee.slurm import SlurmError, run_command


class Refusal(NamedTuple):
    """One kind of refusal: what Slurm's words match, what is allowed, what to do; `ask` is a command that lists choices."""

    words: str
    allowed: str
    next: str
    ask: tuple[str, ...] = ()


_ACCOUNTS = ("sacctmgr", "--noheader", "--parsable2", "show", "associations", "user={user}", "format=account,qos")
_PARTITIONS = ("sinfo", "--noheader", "--format=%R %l")
_NODES = ("sinfo", "--noheader", "--format=%R: %D nodes with %c cores, %m MB, %G")
REFUSALS = (
    Refusal(
        r"submit limit|MaxSubmit|Job violates accounting/QOS policy",
        "no more jobs, or nothing bigger or longer, than the account and the QOS allow",
        "wait until a job of yours has ended, or ask for less; `cordee resume` then submits this run",
        _ACCOUNTS,
    ),
    Refusal(r"Invalid account|account/partition combination", "an account of yours", "set [need] account", _ACCOUNTS),
    Refusal(r"Invalid qos", "a QOS that the account may use", "set [need] qos", _ACCOUNTS),
    Refusal(
        r"[Ii]nvalid partition|partition.*(not available|down)", "a partition", "set [need] partition", _PARTITIONS
    ),
    Refusal(
        r"time limit", "at most the partition's limit", "lower [need] time, or choose another partition", _PARTITIONS
    ),
    Refusal(r"reservation", "a reservation that you may use and that has begun", "set [need] reservation"),
    Refusal(r"[Ii]nvalid feature", "features that nodes have", "set [need] constraint"),
    Refusal(
        r"node configuration|generic resource|[Mm]ore processors|[Nn]ode count|[Mm]emory",
        "what the nodes of the partition have",
        "ask for less in [need], or choose another partition",
        _NODES,
    ),
    Refusal(r"[Uu]nrecognized option|[Ii]nvalid option|unknown option", "options of sbatch", "mend [slurm] options"),
)


def refused(error: SlurmError, run: str) -> SubmitError:
    """Return the error that a person sees when a job could not be submitted.

    Args:
        error: what sbatch said.
        run: id of the run, which stays and can be submitted again.
    """
    said = " ".join(error.said.replace("sbatch: error:", "").split()) or "no reason given"
    if error.missing:
        return SubmitError(
            "Slurm's commands are not on PATH here", given="sbatch", next="log in to the cluster, or use --on local"
        )
    if error.busy:
        return SubmitError(
            f"Slurm's controller did not take the job: {said}",
            given=run,
            next=f"`cordee resume {run}` submits it once the controller answers; it is never submitted twice",
        )
    for refusal in REFUSALS:
        if re.search(refusal.words, said):
            return SubmitError(
                f"Slurm refused the job: {said}", given=run, allowed=_choices(refusal), next=refusal.next
            )
    return SubmitError(
        f"Slurm refused the job: {said}", given=run, next="`cordee check` shows the script as sbatch gets it"
    )


def _choices(refusal: Refusal) -> Any:
    if not refusal.ask:
        return refusal.allowed
    import getpass

    try:
        lines = run_command([word.format(user=getpass.getuser()) for word in refusal.ask], timeout_s=10.0).split("\n")
    except (SlurmError, OSError, KeyError):
        return refusal.allowed
    choices = list(dict.fromkeys(line.strip() for line in lines if line.strip(" |")))
    return f"{refusal.allowed}: {', '.join(choices[:20])}" if choices else refusal.allowed
