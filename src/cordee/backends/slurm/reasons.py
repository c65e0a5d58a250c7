"""Slurm's reasons and job states as people meet them: what each means, and what to do.

A meaning is a clause that can stand after "it waits because" or "it failed because". `{name}` in it is filled with the
job's facts. Families of limits (`QOSMax...`, `AssocGrp...`) are read by their parts in `limits.py`.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from cordee.backends.slurm.node.commands import HELD_STATES

Outlook = Literal["turn", "act", "never", "ended"]
OUTLOOKS = {
    "turn": "starts by itself in time",
    "act": "stays until you or the operators act",
    "never": "will not start as it is",
    "ended": "is how a job ended",
}
LAUNCH_HOLD = "launch failed requeued held"
_HOLDS = ("JobHeldUser", "JobHeldAdmin", "JobHoldMaxRequeue", LAUNCH_HOLD, "job requeued in held state", "ResvDelHold")


class WaitReason(NamedTuple):
    """What a code means: `outlook` says whether waiting helps."""

    meaning: str
    next: str
    outlook: Outlook


_REASONS: dict[str, tuple[Outlook, str, str]] = {
    "None": ("turn", "the scheduler has not looked at it yet", "ask again in a minute"),
    "Priority": (
        "turn",
        "jobs with a higher priority come first",
        "wait; a shorter [need] time or fewer nodes may fit into a gap earlier",
    ),
    "Resources": (
        "turn",
        "it is next in line and the nodes that it needs are in use",
        "wait; a shorter [need] time or fewer nodes may fit into a gap earlier",
    ),
    "Prolog": ("turn", "the site's preparation of its nodes is still running", "wait; tell the operators after 10 min"),
    "Cleaning": ("turn", "its last start is still being cleaned up on its nodes", "wait"),
    "Dependency": ("turn", "it is to start after another job", "wait for that job"),
    "DependencyNeverSatisfied": (
        "never",
        "it is to start after a job that ended the other way",
        "cancel it with `cordee cancel`, mend the job it depends on, and submit both again",
    ),
    "BeginTime": (
        "turn",
        "it may not begin before a set time; after a requeue Slurm waits about two minutes by itself",
        "wait, or remove --begin from [slurm] options",
    ),
    "JobHeldUser": ("act", "you hold it", "`scontrol release {job}`"),
    "JobHeldAdmin": ("act", "an operator holds it", "ask the operators why; only they can release job {job}"),
    "JobHoldMaxRequeue": (
        "act",
        "it was requeued more often than the site allows",
        "see why it ended each time with `cordee logs`, then `scontrol release {job}` or `cordee resume`",
    ),
    LAUNCH_HOLD: (
        "act",
        "it could not be started on its nodes and Slurm put it on hold",
        "leave the node out with [slurm] options, then `scontrol release {job}`; tell the operators",
    ),
    "job requeued in held state": ("act", "it was requeued on hold", "`scontrol release {job}`"),
    "PartitionTimeLimit": (
        "never",
        "its time limit is longer than partition {partition} allows",
        "ask for less time, or for another partition",
    ),
    "PartitionNodeLimit": (
        "never",
        "partition {partition} does not give a job as many nodes as it asks for",
        "ask for fewer nodes, or for another partition",
    ),
    "PartitionConfig": (
        "never",
        "no node of partition {partition} can hold what it asks for on one node",
        "ask for less on each node, or for another partition",
    ),
    "PartitionDown": (
        "act",
        "partition {partition} is closed: jobs may be submitted and none is started",
        "wait for the operators to open it, or ask for another partition",
    ),
    "PartitionInactive": (
        "act",
        "partition {partition} is inactive: nothing is accepted and nothing started",
        "ask for another partition",
    ),
    "AccountNotAllowed": (
        "never",
        "account {account} may not use partition {partition}",
        "set [need] account or [need] partition to what you may use",
    ),
    "QOSNotAllowed": (
        "never",
        "QOS {qos} may not be used with this partition or account",
        "set [need] qos to one that you may use, or leave it out",
    ),
    "InvalidAccount": ("never", "Slurm does not know account {account} for you", "set [need] account to one of yours"),
    "InvalidQOS": ("never", "you may not use QOS {qos}", "set [need] qos to one that you may use, or leave it out"),
    "QOSUsageThreshold": (
        "act",
        "the use of account {account} has passed the threshold of QOS {qos}",
        "wait until old use has decayed, or use another QOS or account",
    ),
    "ReqNodeNotAvail": (
        "act",
        "nodes that it needs are down, drained or reserved",
        "wait for them, or ask for other nodes; a time that ends before a reservation begins helps too",
    ),
    "Nodes required for job are DOWN": (
        "act",
        "too many of the nodes that it could use are down, drained or kept for higher partitions",
        "wait for the operators, or ask for another partition or fewer nodes",
    ),
    "NodeDown": ("act", "a node that it needs is down", "wait, or ask for other nodes"),
    "FrontEndDown": ("act", "no front-end node is up", "wait for the operators"),
    "Reservation": (
        "turn",
        "its reservation has not begun or has no room",
        "wait for the reservation, or remove [need] reservation",
    ),
    "ReservationDeleted": ("act", "its reservation is gone", "remove [need] reservation and submit it again"),
    "ResvDelHold": ("act", "its reservation is gone", "remove [need] reservation and submit it again"),
    "ReservationInvalid": ("never", "its reservation cannot be used", "set [need] reservation to one of yours"),
    "BadConstraints": (
        "never",
        "no set of nodes satisfies what it asks for",
        "change [need] constraint, gpu or nodes to what the partition has",
    ),
    "Licenses": ("turn", "it needs licences that are in use", "wait, or remove --licenses from [slurm] options"),
    "JobArrayTaskLimit": ("turn", "as many tasks of its array run as it allows itself", "wait"),
    "BurstBufferResources": ("turn", "it needs room in a burst buffer", "wait"),
    "BurstBufferStageIn": ("turn", "data is being copied into its burst buffer", "wait"),
    "BurstBufferOperation": ("act", "copying to or from its burst buffer failed", "see the burst buffer lines in it"),
    "MaxMemPerLimit": (
        "never",
        "it asks for more memory per core or node than the site allows",
        "ask for less [need] memory, or more cores with it",
    ),
    "MpiPortsBusy": ("turn", "ports that MPI jobs need are in use", "wait"),
    "MaxPoweredUpNodes": ("turn", "the site keeps no more nodes powered up", "wait"),
    "PowerNotAvail": ("turn", "the site's power limit leaves no room", "wait"),
    "PowerReserved": ("turn", "power is reserved for others", "wait"),
    "SchedDefer": ("turn", "the scheduler puts it off", "wait"),
    "FedJobLock": ("turn", "the clusters of a federation agree on who starts it", "wait"),
    "InactiveLimit": ("ended", "it was inactive for longer than the site allows", "ask the operators for the limit"),
    "SystemFailure": ("ended", "Slurm itself, a node or a file system failed", "`cordee resume`; tell the operators"),
    "JobLaunchFailure": (
        "ended",
        "its batch script was ended by a signal, or could not be started on the node: Slurm calls both so",
        "`cordee resume`; if it never started, leave the node out with [slurm] options and tell the operators",
    ),
    "NonZeroExitCode": ("ended", "its batch script ended with an error", "see the findings below and `cordee logs`"),
    "RaisedSignal": ("ended", "its batch script was ended by a signal", "see the findings below and `cordee logs`"),
    "OutOfMemory": ("ended", "it used more memory than it had asked for", "ask for more [need] memory"),
    "TimeLimit": ("ended", "its time was up", "ask for more [need] time, or save checkpoints and `cordee resume`"),
    "DeadLine": ("ended", "its deadline passed", "submit it with a later --deadline in [slurm] options"),
}

_STATES: dict[str, tuple[str, str]] = {
    "BOOT_FAIL": ("its nodes could not be booted", "`cordee resume`; tell the operators which nodes"),
    "CANCELLED": ("it was cancelled with scancel or by an operator", "`cordee resume` continues it"),
    "COMPLETED": (
        "its job ended in order but the run did not say its last word",
        "see control/*.log in the run folder, then `cordee resume`",
    ),
    "COMPLETING": ("its job is being cleaned up on its nodes", "wait"),
    "CONFIGURING": ("its nodes are being made ready", "wait"),
    "DEADLINE": ("its deadline passed", "submit it with a later --deadline in [slurm] options"),
    "FAILED": ("its batch script ended with an error", "see the findings below and `cordee logs`"),
    "LAUNCH_FAILED": ("it could not be started on its nodes", "`cordee resume`; tell the operators which nodes"),
    "NODE_FAIL": ("a node failed under it", "`cordee resume`; [need] spare_nodes = 1 keeps it going next time"),
    "OUT_OF_MEMORY": ("it used more memory than it had asked for", "ask for more [need] memory"),
    "PENDING": ("it waits in the queue", "see the reason"),
    "POWER_UP_NODE": ("its nodes are being switched on", "wait"),
    "PREEMPTED": ("a job with a higher priority took its nodes", "`cordee resume`, or use a QOS that is not preempted"),
    "RECONFIG_FAIL": ("its nodes could not be reconfigured", "`cordee resume`; tell the operators which nodes"),
    "REQUEUED": ("it goes back into the queue", "wait"),
    "REQUEUE_FED": ("it goes back into the queue of the federation", "wait"),
    "REQUEUE_HOLD": ("it was requeued on hold", "`scontrol release {job}`"),
    "RESIZING": ("its size is being changed", "wait"),
    "RESV_DEL_HOLD": ("its reservation is gone", "remove [need] reservation and submit it again"),
    "REVOKED": ("another cluster of the federation took it", "ask that cluster"),
    "RUNNING": ("it runs", ""),
    "SIGNALING": ("it is being signalled", "wait"),
    "SPECIAL_EXIT": ("it ended with a code for which the site holds jobs", "`scontrol release {job}`"),
    "STAGE_OUT": ("its results are being copied out of a burst buffer", "wait"),
    "STOPPED": ("an operator stopped its processes", "ask the operators"),
    "SUSPENDED": ("an operator or a more urgent job suspended it", "wait, or ask the operators"),
    "TIMEOUT": ("its time was up", "ask for more [need] time, or save checkpoints and `cordee resume`"),
}


def _key(name: str) -> str:
    return re.sub(r"[\s_]+", "", name).casefold()


REASONS = {name: WaitReason(meaning, next, outlook) for name, (outlook, meaning, next) in _REASONS.items()}
STATES = {name: WaitReason(meaning, next, "ended") for name, (meaning, next) in _STATES.items()}
_BY_KEY = {_key(name): (name, reason) for name, reason in REASONS.items()}


def split_reason(text: str) -> tuple[str, str]:
    """Return (code, detail) of a reason as Slurm writes it: `ReqNodeNotAvail,_UnavailableNodes:n3`, `RaisedSignal:9(Killed)`."""
    head, _, detail = re.sub(r"^(\w+):", r"\1,", text.strip().strip("()"), count=1).partition(",")
    name = _BY_KEY.get(_key(head), (head.replace("_", " ").strip(), None))[0]
    return ("" if name in ("None", "(null)") else name), detail.replace("_", " ").strip()


def hold_of(state: str, reason: str) -> WaitReason | None:
    """Return what it means that a job in the queue is on hold, None when it is not."""
    name = split_reason(reason)[0]
    return REASONS[name] if name in _HOLDS else STATES[state] if state in HELD_STATES else None


def known_reason(name: str) -> WaitReason | None:
    """Return what a code means, None when the table does not have it."""
    found = _BY_KEY.get(_key(name))
    return found[1] if found else None
