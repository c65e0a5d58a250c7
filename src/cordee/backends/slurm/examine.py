"""What is worth saying about a plan for Slurm before it is submitted."""

from __future__ import annotations

from cordee.backends.slurm.examine_mpi import examine_mpi
from cordee.core.findings import Finding
from cordee.core.units import format_duration
from cordee.core.words import did_you_mean
from cordee.job.findings import JobFindings
from cordee.job.load import LoadedJob
from cordee.job.plan.examine.nodes import examine_nodes
from cordee.job.plan.examine.options import examine_options
from cordee.job.plan.examine.storage import examine_storage
from cordee.job.plan.model import Plan
from cordee.job.plan.placement import Placement, account_name


def examine_slurm(loaded: LoadedJob, plan: Plan, placement: Placement) -> list[Finding]:
    """Return the findings on a plan for Slurm."""
    saying = JobFindings(loaded)
    _cluster(saying, loaded)
    _partition(saying, loaded, placement)
    _account(saying, loaded, placement)
    _qos(saying, loaded, placement)
    _reservation(saying, loaded)
    _length(saying, plan, placement)
    return [
        *saying.findings,
        *examine_nodes(loaded, plan, placement),
        *examine_options(loaded, plan),
        *examine_mpi(loaded),
        *examine_storage(loaded, plan),
    ]


def _cluster(saying: JobFindings, loaded: LoadedJob) -> None:
    cluster = loaded.cluster
    if cluster.answering is None:
        saying.warn(
            "need",
            "no-slurm",
            f"no Slurm answers here: what is said of {cluster.name} is what its profile says",
            given=cluster.name,
            next="submit it on a login node of the cluster",
        )
    elif cluster.slurm_cluster not in (None, cluster.answering):
        saying.error(
            "need",
            "other-cluster",
            f"the profile {cluster.name} is for the Slurm cluster {cluster.slurm_cluster}, and {cluster.answering} answers",
            given=cluster.slurm_cluster,
            allowed=cluster.answering,
            next=f"submit it on a login node of {cluster.slurm_cluster}, or use --on slurm",
        )


def _partition(saying: JobFindings, loaded: LoadedJob, placement: Placement) -> None:
    cluster, facts = loaded.cluster, placement.facts
    if not cluster.partitions:
        return
    known = sorted(cluster.partitions)
    if placement.partition is None:
        text = f"{cluster.name} has no default partition, and none is named"
        saying.error("need", "no-partition", text, allowed=known, next=f'add partition = "{known[0]}" to [need]')
    elif facts is None:
        saying.error(
            "need.partition",
            "unknown-partition",
            f"{cluster.name} has no partition {placement.partition}",
            given=placement.partition,
            allowed=known,
            next=did_you_mean(placement.partition, known, "name one of these"),
        )
    elif facts.state != "up":
        severity = saying.warn if facts.state == "down" else saying.error
        what = "jobs wait until it is up" if facts.state == "down" else "it takes no jobs"
        severity(
            "need.partition",
            "partition-closed",
            f"partition {placement.partition} is {facts.state}: {what}",
            given=placement.partition,
            allowed=[name for name in known if cluster.partitions[name].state == "up"],
            next="choose another, or wait",
        )


def _account(saying: JobFindings, loaded: LoadedJob, placement: Placement) -> None:
    """Refuse an account that this person does not have, or that may not use the partition."""
    need, cluster, facts = loaded.job.need, loaded.cluster, placement.facts
    accounts = cluster.accounts
    if accounts is None:
        return
    name = account_name(need, cluster)
    if name is None or name not in accounts:
        known = sorted(accounts)
        saying.error(
            "need.account",
            "unknown-account",
            f"you have no account {name} on {cluster.name}" if name else f"{cluster.name} wants an account",
            given=name,
            allowed=known or "you have no account here",
            next=did_you_mean(name or "", known, "name one of these" if known else "ask the site for one"),
        )
        return
    may = accounts[name].partitions
    closed = may is not None and placement.partition is not None and placement.partition not in may
    if closed or (facts is not None and facts.accounts is not None and name not in facts.accounts):
        saying.error(
            "need.account",
            "account-not-allowed",
            f"account {name} may not use partition {placement.partition}",
            given=name,
            allowed=list(may if closed and may else facts.accounts if facts and facts.accounts else ()),
            next="choose another account or partition",
        )


def _qos(saying: JobFindings, loaded: LoadedJob, placement: Placement) -> None:
    """Refuse a QOS that does not exist, that this person does not have, or that the partition does not take."""
    name, cluster, facts = placement.qos, loaded.cluster, placement.facts
    if name is None:
        return
    own = placement.account.qos if placement.account else ()
    if (own and name not in own) or (cluster.qos is not None and name not in cluster.qos):
        known = sorted(own or cluster.qos or ())
        text = f"you have no QOS {name} on {cluster.name}" if own else f"{cluster.name} has no QOS {name}"
        what = did_you_mean(name, known, "name one of these")
        saying.error("need.qos", "unknown-qos", text, given=name, allowed=known, next=what)
    elif facts is not None and facts.allow_qos is not None and name not in facts.allow_qos:
        saying.error(
            "need.qos",
            "qos-not-allowed",
            f"partition {placement.partition} does not take QOS {name}",
            given=name,
            allowed=list(facts.allow_qos),
            next="choose another QOS or partition",
        )


def _reservation(saying: JobFindings, loaded: LoadedJob) -> None:
    name, cluster = loaded.job.need.reservation, loaded.cluster
    if name is None or cluster.reservations is None or set(name.split(",")) <= set(cluster.reservations):
        return
    known = sorted(cluster.reservations)
    saying.error(
        "need.reservation",
        "unknown-reservation",
        f"{cluster.name} has no reservation {name}",
        given=name,
        allowed=known or "there are none now",
        next=did_you_mean(name, known, "remove reservation, or name one that there is"),
    )


def _length(saying: JobFindings, plan: Plan, placement: Placement) -> None:
    """Say how a time becomes jobs."""
    segment, time_s = plan.step.segment, plan.step.request.time_s
    if time_s is None:
        text = "no time is given, and no limit is known: the job runs until it ends by itself"
        if segment.limit_s is not None:
            text = f"no time is given: the job gets {format_duration(segment.limit_s)}, {_whose(placement)}"
        what = "give [need] time: shorter jobs start sooner, and a longer time becomes a chain"
        saying.info("need.time", "no-time", text, next=what)
        return
    if placement.job_class is not None:
        asked = [f"partition {placement.partition}"] + ([f"QOS {placement.qos}"] if placement.qos else [])
        text = f"{format_duration(time_s)} is of class {placement.job_class}: {', '.join(asked)}"
        saying.info("need.time", "class", text, given=format_duration(time_s))
    if segment.max_segments == 1 or segment.limit_s is None:
        return
    limit, whole = format_duration(segment.limit_s), format_duration(time_s)
    if segment.next == "forbidden":
        saying.error(
            "need.time",
            "too-long",
            f"{whole} is longer than the {limit} of {placement.limit.owner}, and {plan.cluster} allows no chain of jobs",
            given=format_duration(time_s),
            allowed=f"at most {limit}",
            next=f'write time = "{int(segment.limit_s) // 60}min", or choose a partition or QOS with a longer limit',
        )
        return
    how = "the same job is put back into the queue" if segment.next == "requeue" else "a new job is submitted"
    text = (
        f"{whole} becomes a chain of up to {segment.max_segments} segments of {limit}, the limit of "
        f"{placement.limit.owner}: each is asked to save {format_duration(segment.grace_s)} before its end, then {how}"
    )
    saying.info("need.time", "chain", text, given=format_duration(time_s), evidence=segment.model_dump())


def _whose(placement: Placement) -> str:
    facts = placement.facts
    if facts is not None and facts.default_time is not None:
        return f"the default of partition {placement.partition}"
    return f"the limit of {placement.limit.owner}"
