"""What Slurm says of a run: its newest job, the limits around it, and the nodes; what cannot be asked is said so."""

from __future__ import annotations

import getpass
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from cordee.backends.facts import GONE, NodeGroup, Partition, Reservation, SchedulerFacts
from cordee.backends.slurm.limits import read_limit, read_tres
from cordee.backends.slurm.node.commands import (
    COMMENT_PREFIX,
    ENDED_STATES,
    WAITING_STATES,
    QueuedJob,
    SlurmError,
    job_record,
    my_jobs,
    parse_records,
    run_command,
)
from cordee.backends.slurm.reasons import split_reason
from cordee.backends.slurm.values import NOTHING, gpus, moment, number, seconds, size_bytes, text_of, whole
from cordee.runs.folder import RunFolder
from cordee.runs.log_tails import last_lines

_COMMAND_S = 10.0
_REQUEUED = "DUE TO JOB REQUEUE"
_SACCT = (
    "JobIDRaw",
    "State",
    "ExitCode",
    "DerivedExitCode",
    "MaxRSS",
    "ReqMem",
    "TimelimitRaw",
    "ElapsedRaw",
    "NNodes",
    "Partition",
    "Account",
    "QOS",
    "Submit",
    "Reason",
    "NodeList",
)


class _SlurmQueries:
    """Asks one thing after the other and remembers what could not be asked."""

    def __init__(self) -> None:
        self.unknown: list[str] = []
        self._down = False

    def ask(self, what: str, *argv: str) -> str | None:
        """Return a command's output; None when it fails, is missing, or the controller did not answer before."""
        found: str | None = self.call(what, lambda: run_command(argv, timeout_s=_COMMAND_S), argv[0])
        return found

    def call(self, what: str, ask: Callable[[], Any], command: str) -> Any:
        """Return what `ask` returns; None when it raises SlurmError."""
        if self._down and command != "sacct":
            self.unknown.append(f"{what}: the controller does not answer")
            return None
        try:
            return ask()
        except SlurmError as error:
            self._down = self._down or (error.busy and command != "sacct")
            self.unknown.append(f"{what}: {error.text}")
            return None


def collect_facts(folder: RunFolder, job: str | None) -> SchedulerFacts:
    """Return what Slurm knows of a run's newest job with a handful of quick commands; never raises for Slurm's sake.

    Args:
        job: the newest job by the journal; one that Slurm lists with the run's comment and is active counts before it.
    """
    asking = _SlurmQueries()
    jobs: list[QueuedJob] = asking.call("your jobs", lambda: my_jobs(timeout_s=_COMMAND_S), "squeue") or []
    facts = SchedulerFacts("slurm", _newest_job(folder, job, jobs), own_jobs=_by_state(jobs))
    forgotten = False
    if facts.job is not None:
        asked = len(asking.unknown)
        record = asking.call("the job", lambda: job_record(str(facts.job), timeout_s=_COMMAND_S), "scontrol")
        forgotten = record is None and len(asking.unknown) == asked
        facts = _from_record(facts, record) if record else _from_queue(facts, jobs)
    if facts.state in ENDED_STATES or not facts.state:
        facts = _with_accounting(facts, asking)
    if forgotten and not facts.state:
        facts = replace(facts, state=GONE)
    if facts.state in WAITING_STATES or not facts.state:
        facts = _with_site(facts, asking)
        facts = _with_rights(facts, asking)
    output = _batch_output(folder, facts.job)
    return replace(facts, batch_output=output, unknown=tuple(asking.unknown))


def _newest_job(folder: RunFolder, named: str | None, jobs: list[QueuedJob]) -> str | None:
    listed = [job for job in jobs if job.comment == f"{COMMENT_PREFIX}{folder.id}"]
    active = [job.id for job in listed if job.active]
    newest = max((job.id for job in listed), key=_job_number, default=None)
    return max(active, key=_job_number, default=None) or named or newest


def _job_number(job: str) -> int:
    digits = re.match(r"\d+", job)
    return int(digits.group()) if digits else 0


def _by_state(jobs: list[QueuedJob]) -> dict[str, int]:
    states = [job.state for job in jobs if job.active]
    return {state: states.count(state) for state in dict.fromkeys(states)}


def _from_record(facts: SchedulerFacts, record: dict[str, str]) -> SchedulerFacts:
    reason, detail = split_reason(record.get("Reason", ""))
    code, _, signal = record.get("ExitCode", "").partition(":")
    state = record.get("JobState", "").split()[0] if record.get("JobState") else ""
    waiting = state in WAITING_STATES
    return replace(
        facts,
        state=state,
        reason=reason,
        detail=detail,
        submitted_at=moment(record.get("SubmitTime")),
        eligible_at=moment(record.get("EligibleTime")),
        starts_at=moment(record.get("StartTime")) if waiting else None,
        exit_code=whole(code),
        signal=whole(signal) or None,
        time_limit_s=seconds(record.get("TimeLimit")),
        elapsed_s=None if waiting else seconds(record.get("RunTime")),
        cores=whole(record.get("NumCPUs", "").partition("-")[0]),
        gpus_per_node=gpus(record.get("TresPerNode", "")) or None,
        memory_bytes=size_bytes(record.get("MinMemoryNode")),
        node_count=whole(record.get("NumNodes", "").partition("-")[0]),
        nodes=text_of(record.get("NodeList")),
        tres=read_tres(record.get("ReqTRES") or record.get("TRES", "")),
        restarts=whole(record.get("Restarts")),
        partition=text_of(record.get("Partition")),
        account=text_of(record.get("Account")),
        qos=text_of(record.get("QOS")),
        features=text_of(record.get("Features")),
        dependency=text_of(record.get("Dependency")),
        reservation=text_of(record.get("Reservation")),
    )


def _from_queue(facts: SchedulerFacts, jobs: list[QueuedJob]) -> SchedulerFacts:
    for job in jobs:
        if job.id == facts.job:
            reason, detail = split_reason(job.reason)
            return replace(facts, state=job.state, reason=reason, detail=detail)
    return facts


def _with_accounting(facts: SchedulerFacts, asking: _SlurmQueries) -> SchedulerFacts:
    """Add what accounting kept: the state of a job that the controller forgot, the largest memory of its steps."""
    if facts.job is None:
        return facts
    argv = ["sacct", "--noheader", "--parsable2", "--duplicates", f"--jobs={facts.job}", f"--format={','.join(_SACCT)}"]
    rows = [
        dict(zip(_SACCT, line.split("|"), strict=False))
        for line in (asking.ask("accounting", *argv) or "").splitlines()
    ]
    own = [row for row in rows if row.get("JobIDRaw") == facts.job]
    if not own:
        return facts
    row = own[-1]
    code, _, signal = row.get("ExitCode", "").partition(":")
    derived = row.get("DerivedExitCode", "").partition(":")[0]
    reason, detail = split_reason(row.get("Reason", ""))
    rss = [size_bytes(other.get("MaxRSS")) or 0 for other in rows]
    steps_oom = any(other.get("State", "").startswith("OUT_OF_ME") for other in rows)
    state = facts.state or row.get("State", "").split()[0]
    return replace(
        facts,
        state="OUT_OF_MEMORY" if steps_oom and state == "FAILED" else state,
        reason=facts.reason or reason,
        detail=facts.detail or detail,
        exit_code=facts.exit_code if facts.exit_code is not None else whole(code) or whole(derived),
        signal=facts.signal or whole(signal) or None,
        submitted_at=facts.submitted_at or moment(row.get("Submit")),
        most_rss_bytes=max(rss, default=0) or None,
        memory_bytes=facts.memory_bytes or _memory_of_a_node(row),
        time_limit_s=facts.time_limit_s or (60.0 * minutes if (minutes := whole(row.get("TimelimitRaw"))) else None),
        elapsed_s=facts.elapsed_s or whole(row.get("ElapsedRaw")),
        node_count=facts.node_count or whole(row.get("NNodes")),
        nodes=facts.nodes or text_of(row.get("NodeList")),
        partition=facts.partition or text_of(row.get("Partition")),
        account=facts.account or text_of(row.get("Account")),
        qos=facts.qos or text_of(row.get("QOS")),
    )


def _memory_of_a_node(row: dict[str, str]) -> int | None:
    """Return the memory asked for on a node: of all nodes together since Slurm 21.08, `4Gn` or `4Gc` before."""
    asked, nodes = row.get("ReqMem", ""), whole(row.get("NNodes")) or 1
    found = None if asked.endswith("c") else size_bytes(asked)
    return found if found is None or asked.endswith("n") else found // nodes


def _with_site(facts: SchedulerFacts, asking: _SlurmQueries) -> SchedulerFacts:
    """Add the partitions' limits and their nodes."""
    shown = asking.ask("partitions", "scontrol", "show", "partition", "--oneliner") or ""
    partitions = tuple(
        Partition(
            record.get("PartitionName", ""),
            record.get("State", "UP"),
            seconds(record.get("MaxTime")),
            whole(record.get("MaxNodes")),
            record.get("Default") == "YES",
        )
        for record in parse_records(shown)
    )
    listed = asking.ask("nodes", "sinfo", "--noheader", "--format=%R|%t|%D|%c|%m|%G|%f|%N|%E") or ""
    groups = [_group(line.split("|", 8)) for line in listed.splitlines() if line.count("|") >= 8]
    reservations = _reservations(asking) if facts.reason.startswith(("ReqNodeNotAvail", "Reservation")) else ()
    return replace(facts, partitions=partitions, node_groups=tuple(groups), reservations=reservations)


def _reservations(asking: _SlurmQueries) -> tuple[Reservation, ...]:
    records = parse_records(asking.ask("reservations", "scontrol", "show", "reservation", "--oneliner") or "")
    found = [
        Reservation(
            record["ReservationName"],
            moment(record.get("StartTime")),
            moment(record.get("EndTime")),
            text_of(record.get("Nodes")),
        )
        for record in records
        if "ReservationName" in record
    ]
    return tuple(sorted(found, key=lambda reservation: reservation.starts_at or 0.0))


def _group(fields: list[str]) -> NodeGroup:
    partition, state, count, cores, memory, gres, features, nodes, reason = fields
    return NodeGroup(
        partition,
        state,
        whole(count) or 0,
        nodes,
        whole(cores.rstrip("+")) or 0,
        (whole(memory.rstrip("+")) or 0) << 20,
        gpus(gres),
        tuple(name for name in features.split(",") if name not in NOTHING),
        text_of(reason),
    )


def _with_rights(facts: SchedulerFacts, asking: _SlurmQueries) -> SchedulerFacts:
    """Add limits, accounts, QOS and priority where the reason makes them worth asking for."""
    reason = facts.reason
    if reason == "Priority":
        return replace(facts, priority=_priority(facts, asking))
    limit = read_limit(reason)
    if limit is None and not re.search(r"account|qos|assoc", reason, re.IGNORECASE):
        return facts
    user = getpass.getuser()
    shown = asking.ask("your accounts", "sacctmgr", "--noheader", "--parsable2", "show", "assoc", f"user={user}",
                       "format=Account,QOS,MaxJobs,MaxSubmit,MaxWall,MaxTRES,GrpTRES,GrpTRESMins,GrpTRESRunMins")  # fmt: skip
    rows = [line.split("|") for line in (shown or "").splitlines() if line.count("|") == 8]
    accounts = tuple(dict.fromkeys(row[0] for row in rows))
    qos = tuple(dict.fromkeys(name for row in rows for name in row[1].split(",") if name))
    facts = replace(facts, accounts=accounts, qos_allowed=qos)
    if limit is None:
        return facts
    if limit.owner == "QOS":
        return replace(facts, limits=_limits_of_qos(facts.qos, asking))
    names = ("MaxJobs", "MaxSubmit", "MaxWall", "MaxTRES", "GrpTRES", "GrpTRESMins", "GrpTRESRunMins")
    own = [row for row in rows if row[0] == facts.account] or rows
    return replace(
        facts, limits={name: value for row in own for name, value in zip(names, row[2:], strict=True) if value}
    )


_QOS_LIMITS = (
    "MaxWall",
    "MaxJobsPU",
    "MaxSubmitPU",
    "MaxJobsPA",
    "MaxSubmitPA",
    "MaxTRES",
    "MaxTRESMins",
    "MaxTRESPerNode",
    "MaxTRESPU",
    "MaxTRESPA",
    "MinTRES",
    "GrpJobs",
    "GrpSubmit",
    "GrpWall",
    "GrpTRES",
    "GrpTRESMins",
    "GrpTRESRunMins",
)


def _limits_of_qos(qos: str, asking: _SlurmQueries) -> dict[str, str]:
    """Return the limits of a QOS that are set, by the names of sacctmgr."""
    if not qos:
        return {}
    argv = ("sacctmgr", "--noheader", "--parsable2", "show", "qos", qos, f"format={','.join(_QOS_LIMITS)}")
    lines = (asking.ask(f"limits of QOS {qos}", *argv) or "").splitlines()
    values = lines[0].split("|") if lines else []
    return {name: value for name, value in zip(_QOS_LIMITS, values, strict=False) if value}


def _priority(facts: SchedulerFacts, asking: _SlurmQueries) -> dict[str, float]:
    """Return the weighted parts of the job's priority; empty without the multifactor plug-in."""
    shown = asking.ask("priority", "sprio", "--noheader", "--format=%Y|%A|%F|%J|%P|%Q", f"--jobs={facts.job}") or ""
    names = ("total", "age", "fairshare", "size", "partition", "qos")
    fields = shown.strip().split("|")
    found = {name: number(text) for name, text in zip(names, fields, strict=False)}
    return {name: value for name, value in found.items() if value is not None}


def _batch_output(folder: RunFolder, job: str | None) -> tuple[str, ...]:
    """Return the last lines that the job's batch script wrote into the run folder since it was last requeued."""
    lines = last_lines(folder.submit / f"slurm-{job}.out") if job else ()
    begun = max((at + 1 for at, line in enumerate(lines) if _REQUEUED in line), default=0)
    return lines[begun:]
