"""What sbatch says when it refuses a job, what it means, and which key of cordee.toml to change."""

from __future__ import annotations

import re
from typing import NamedTuple

from cordee.backends.reasons.clauses import note
from cordee.backends.slurm.limits import explain, read_limit
from cordee.backends.slurm.reasons import known_reason
from cordee.core.findings import Finding

_CODE = re.compile(r"\b((?:QOS|Assoc|Max)\w*(?:Limit|Minutes|Per\w+|Satisfied|GRES)|Partition(?:Time|Node)Limit)\b")


class SbatchRefusal(NamedTuple):
    """A pattern of what sbatch says; `meaning` is a clause that can stand after "because"."""

    rule: str
    pattern: re.Pattern[str]
    meaning: str
    next: str


def _refusal(rule: str, pattern: str, meaning: str, next: str) -> SbatchRefusal:
    return SbatchRefusal(f"refused-{rule}", re.compile(pattern, re.IGNORECASE), meaning, next)


REFUSALS = (
    _refusal(
        "account",
        r"Invalid account",
        "Slurm does not take the account for you, or not in this partition",
        "set [need] account to one of yours: `sacctmgr -nP show assoc user=$USER format=account,partition`",
    ),
    _refusal(
        "qos",
        r"Invalid qos",
        "you may not use this QOS, or there is none of this name",
        "set [need] qos to one of yours: `sacctmgr -nP show assoc user=$USER format=account,qos`",
    ),
    _refusal(
        "partition",
        r"Invalid partition|invalid partition specified",
        "there is no such partition, or you may not use it",
        "set [need] partition to one that `sinfo -s` lists",
    ),
    _refusal(
        "reservation",
        r"reservation is invalid|Access denied to requested reservation|Requested reservation",
        "there is no such reservation, or it is not for you",
        "set [need] reservation to one that `scontrol show reservation` lists, or remove it",
    ),
    _refusal(
        "memory",
        r"Memory (specification|required)",
        "no node has as much memory as it asks for",
        "ask for less [need] memory; `sinfo -o '%P %m'` shows MB on a node",
    ),
    _refusal(
        "constraint",
        r"Invalid feature",
        "no node has the feature that it asks for",
        "set [need] constraint to features that `sinfo -o '%P %f'` lists",
    ),
    _refusal(
        "devices",
        r"generic resource|\bgres\b",
        "no node has the devices that it asks for",
        "set [need] gpus_per_node to what `sinfo -o '%P %G'` lists",
    ),
    _refusal(
        "time",
        r"time limit is (invalid|missing|exceeds)|Requested time limit|PartitionTimeLimit",
        "its time limit is longer than the partition allows, or missing",
        "set [need] time to what `sinfo -o '%P %l'` lists, or take another partition",
    ),
    _refusal(
        "nodes",
        r"Node count specification|More processors requested|Invalid number of nodes|PartitionNodeLimit",
        "it asks for more nodes or cores than the partition has or gives to one job",
        "ask for fewer [need] nodes or cpus_per_rank; `sinfo -o '%P %D %c'` shows what is there",
    ),
    _refusal(
        "licence",
        r"Invalid license",
        "there is no such licence",
        "mend --licenses in [slurm] options; `scontrol show lic` lists them",
    ),
    _refusal(
        "dependency",
        r"dependency problem|Invalid job dependency",
        "the job that it is to start after is unknown",
        "mend --dependency in [slurm] options",
    ),
    _refusal(
        "node-name",
        r"Invalid node name|Invalid node list",
        "a node that it names does not exist",
        "mend --nodelist or --exclude in [slurm] options",
    ),
    _refusal(
        "configuration",
        r"node configuration is not available",
        "no node of the partition is like what it asks for",
        "ask for less memory, cores or GPUs on a node in [need], or another partition",
    ),
    _refusal(
        "option",
        r"unrecognized option|invalid option|Invalid .* specification|requires an argument",
        "sbatch does not take one of its options",
        "mend [slurm] options; `sbatch --help` lists what this version takes",
    ),
    _refusal(
        "policy",
        r"accounting/QOS policy|job submit limit",
        "a limit of the QOS or the account is reached",
        "wait until other jobs end, ask for less, or use another [need] qos or account",
    ),
    _refusal(
        "closed",
        r"(Required )?partition not available|in an inactive state|Submission .*disabled",
        "the partition takes no jobs now",
        "wait, or set [need] partition to another",
    ),
    _refusal(
        "permission",
        r"Access/permission denied|User's group not permitted|not permitted to use this partition",
        "you may not submit there",
        "use another [need] partition or account, or ask the operators",
    ),
)


def explain_refusal(said: str, *, qos: str | None = None, account: str | None = None) -> Finding | None:
    """Return what a refusal of sbatch means and what to change; None when it is not known.

    Args:
        said: what sbatch wrote to standard error.
        qos, account: what the job asked for.
    """
    words = " ".join(said.split())[-400:]
    names = {"qos": qos or "(the default)", "account": account or "(the default)", "partition": "", "job": "JOB"}
    for code in _CODE.findall(said):
        if known_reason(code) or read_limit(code):
            reason = explain(code)
            return note(
                f"refused-{code.casefold()}",
                reason.meaning.format(**names),
                "error",
                next=reason.next.format(**names),
                given=words,
            )
    for refusal in REFUSALS:
        if refusal.pattern.search(said):
            return note(refusal.rule, refusal.meaning, "error", next=refusal.next, given=words)
    return None
