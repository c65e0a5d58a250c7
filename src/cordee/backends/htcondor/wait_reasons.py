"""Why a run waits in an HTCondor pool, and how its job ended: what is asked for beside what machines have."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from cordee.backends.facts import HELD, SUSPENDED, NodeGroup
from cordee.backends.htcondor.facts import asked_of
from cordee.backends.htcondor.job_states import state_of
from cordee.backends.htcondor.queue import CondorJob
from cordee.backends.htcondor.refusals import explain_refusal
from cordee.backends.reasons.clauses import note, setting, size_value
from cordee.backends.reasons.meaning import Meaning, Reasons, not_known_to_the_scheduler
from cordee.backends.reasons.situation import Situation
from cordee.core.findings import Finding
from cordee.core.units import format_duration, format_size

_NEW_S = 60.0
_MOST_SIZES = 4
# Parts of requirements that Cordée asks for by [need]; what is left of these at this moment is in the numbers of the pool.
_BY_NEED = re.compile(r"\bRequest(Memory|Disk|Cpus|GPUs)\b")
_GPUS = re.compile(r"RequireGPUs|AvailableGPUs|GPUs_|DeviceName|Capability", re.IGNORECASE)
# What machines say that can start containers.
_ENGINE = re.compile(r"\bHas(Container|Docker(URL)?|SIF|SandboxImage|Singularity|Apptainer)\b")
# Of any kind: HTCondor asks for it beside the kind of the image.
_ANY_ENGINE = re.compile(r"^TARGET\.HasContainer$")
# Parts that are met or not by how busy machines are.
_PASSES = re.compile(r"\b(Memory|Disk|Cpus|GPUs|State|Activity|\w*LoadAvg|KeyboardIdle)\b")
_NAMES = {"memory": "memory", "disk": "disk", "cpus": "CPUs", "gpus": "GPUs"}
# What the negotiator says of its last look (LastRejMatchReason), beside "no match found".
_REJECTED = (
    (r"concurrency limit", "a limit of the pool on jobs of its kind is reached"),
    (r"submitter limit|quota", "you, or your group, have your share of the pool"),
    (r"priority|preempt", "the pool gives its machines to others first"),
)


def _job(situation: Situation) -> CondorJob:
    return CondorJob(situation.scheduler.own.get("job") or {})


def held_or_suspended(situation: Situation) -> Iterator[Finding]:
    """Say why the pool, or somebody, holds or suspends the job."""
    facts = situation.scheduler
    if facts.state not in (HELD, SUSPENDED):
        return
    job = _job(situation)
    state = state_of(job)
    severity = "info" if facts.state == SUSPENDED else "warn" if state.rule == "held-by-person" else "error"
    code = f"{job.text('HoldReasonCode')}/{job.text('HoldReasonSubCode')}" if facts.state == HELD else None
    said = job.text("HoldReason") or None
    yield note(state.rule, state.text, severity, next=state.next, change=state.change or None, code=code, said=said)


def too_large(situation: Situation) -> Iterator[Finding]:
    """Say so when no machine of the pool has what it asks for, however idle it is."""
    pool = situation.scheduler.own.get("pool")
    if not pool:
        return
    if not pool["machines"]:
        yield note("no-machines", "the pool has no machines", "error", next="`condor_status` lists them once there are")
        return
    asked, most = asked_of(_job(situation)), pool["most"]
    over = [name for name in ("gpus", "memory", "disk", "cpus") if asked[name] > most[name]]
    for name in over:
        yield _too_much(situation, name, asked[name], most[name], pool["machines"])
    if over or pool["large_enough"]:
        return
    gpu = situation.part("request").get("gpu")
    sizes = sorted({_size_of(group) for group in situation.scheduler.node_groups})[-_MOST_SIZES:]
    if gpu and asked["gpus"]:
        yield _no_such_gpu(situation)
        return
    yield note(
        "too-large",
        "no machine of the pool has all that it asks for at once",
        "error",
        next="ask for less [need] memory, disk, cpus_per_rank, ranks_per_node or gpus_per_node",
        given=_asked_words(_job(situation)),
        allowed="; ".join(sizes) or None,
    )


def _too_much(situation: Situation, name: str, asked: float, most: float, machines: int) -> Finding:
    what = _NAMES[name]
    text = f"no machine of the pool has as much {what} as it asks for"
    if name in ("cpus", "gpus"):
        text = f"no machine of the pool has as many {what} as it asks for"
    change: dict[str, Any] = {}
    ranks = int(situation.part("request").get("ranks_per_node") or 1)
    if name == "gpus" and not most:
        text = "no machine of the pool has a GPU"
    elif name == "cpus":
        change = {"need.cpus_per_rank": int(most // ranks)} if most >= ranks else {"need.ranks_per_node": int(most)}
    elif name == "gpus":
        change = {"need.gpus_per_node": int(most)}
    else:
        change = {f"need.{name}": size_value(most)}
    ways = [f"set {setting(key, value)}" for key, value in change.items()]
    if name == "gpus" and not most:
        ways = ["run it on another cluster, or without [need] gpus_per_node"]
    return note(
        f"too-much-{name}" if most or name != "gpus" else "no-gpus",
        text,
        "error",
        next=" or ".join(ways),
        change=change or None,
        given=_shown(name, asked),
        allowed=f"at most {_shown(name, most)} ({machines} {'machine' if machines == 1 else 'machines'})",
    )


def _no_such_gpu(situation: Situation, *, now: bool = False) -> Finding:
    gpu = situation.part("request").get("gpu") or _job(situation).text("RequireGPUs")
    text = (
        "no machine that is free has a GPU as it asks for" if now else "no machine of the pool has a GPU as it asks for"
    )
    return note(
        "no-such-gpu",
        text,
        "warn" if now else "error",
        next="ask for less in [need] gpu: `condor_status -gpus` shows what there is",
        given=f'[need] gpu = "{gpu}"',
    )


def requirements_unmet(situation: Situation) -> Iterator[Finding]:
    """Say which parts of the job's requirements no machine meets, and whether machines refuse it by rules of their own."""
    pool, analysis = situation.scheduler.own.get("pool"), situation.scheduler.own.get("analysis")
    if not analysis or (pool and not pool["large_enough"]):
        return
    conditions = [one for one in analysis["conditions"] if not _BY_NEED.search(one)]
    gpus = [one for one in analysis["conditions"] if _GPUS.search(one)]
    # GPUs that are in use are none: what is said of them means something where some are free.
    if gpus and pool and pool["free"]:
        yield _no_such_gpu(situation, now=pool["free"] < pool["large_enough"])
    engines = [one for one in conditions if _ENGINE.search(one)]
    if any(_ANY_ENGINE.search(one) for one in engines):
        text = "no machine of the pool has a container engine"
        what = "run it without environment, or ask the operators for one: `condor_status -af Machine HasContainer`"
        yield note("no-container-engine", text, "error", next=what, conditions=engines)
    elif engines:
        text = f"no machine of the pool can start such a container: none meets {' and '.join(engines)}"
        kinds = (
            "an image of a registry needs HasDockerURL, a file HasSIF: `condor_status -af Machine HasDockerURL HasSIF`"
        )
        what = f"give the EDF an `image` of the other kind, or run it without environment ({kinds})"
        yield note("no-container-engine", text, "error", next=what, conditions=engines)
    conditions = [one for one in conditions if one not in engines]
    lasting = [one for one in conditions if one not in gpus and not _PASSES.search(one)]
    passing = [one for one in conditions if one not in gpus and _PASSES.search(one)]
    wanted = (situation.part("request").get("scheduler") or {}).get("requirements")
    advice = "correct [htcondor] requirements in the profile of the cluster" if wanted else "ask the operators"
    if lasting:
        text = f"no machine of the pool meets {' and '.join(lasting)}"
        yield note("requirements", text, "error", next=advice, given=wanted, conditions=lasting)
    elif passing:
        text = f"no machine of the pool meets {' and '.join(passing)} at the moment"
        yield note("requirements-now", text, next=f"wait, or {advice}", given=wanted, conditions=passing)
    if analysis["refusing"] and not (pool and analysis["refusing"] < pool["machines"]):
        yield note(
            "machines-refuse",
            "the machines do not take it by rules of their own (START)",
            "error",
            next="ask the operators which attributes jobs must have, and set them in [htcondor] attributes of the profile",
            machines=analysis["refusing"],
        )


def evicted(situation: Situation) -> Iterator[Finding]:
    """Say that it was under way and goes on by itself, and with what."""
    job = _job(situation)
    state = state_of(job)
    if situation.scheduler.state != "PENDING" or state.rule != "evicted":
        return
    newest = situation.state.checkpoint
    text = f"{state.text}, from {newest}" if newest else f"{state.text}; no checkpoint was seen, so that it begins anew"
    yield note("evicted", text, "info", said=job.text("VacateReason") or None, starts=job.starts)


def in_use(situation: Situation) -> Iterator[Finding]:
    """Say that machines are large enough and none is free, or what the pool said when it looked last."""
    facts, job = situation.scheduler, _job(situation)
    pool = facts.own.get("pool")
    if facts.state != "PENDING" or not pool or not pool["large_enough"]:
        return
    said = job.text("LastRejMatchReason").strip()
    for pattern, text in _REJECTED:
        if re.search(pattern, said, re.IGNORECASE):
            yield note("priority", text, "info", next="wait; `condor_userprio` shows who is served first", said=said)
            return
    large, free = pool["large_enough"], pool["free"]
    conditions = (facts.own.get("analysis") or {}).get("conditions", ())
    unmet = [one for one in conditions if _GPUS.search(one) or not _BY_NEED.search(one)]
    count = f"the {large} machines of the pool that are" if large > 1 else "the only machine of the pool that is"
    if not free:
        own = f"; your runs: {_counted(facts.own_jobs)}" if sum(facts.own_jobs.values()) > 1 else ""
        text = f"{count} large enough {'are' if large > 1 else 'is'} in use"
        advice = "wait; less [need] memory, disk or CPUs may fit beside others earlier"
        yield note("in-use", text, "info", next=advice, given=f"{_asked_words(job)}{own}", allowed=f"0 free of {large}")
    elif unmet or job.starts:
        return
    elif facts.submitted_at and situation.now - facts.submitted_at < _NEW_S:
        yield note("none", "the pool has not looked at it yet", "info", next="ask again in a minute")
    else:
        waited = format_duration(situation.now - facts.submitted_at) if facts.submitted_at else "some time"
        text = f"the pool has not given it a machine in {waited}, though {free} of {large} are free"
        yield note(
            "not-matched", text, "warn", next=f"`condor_q -better-analyze {job.id}` says more", said=said or None
        )


def not_asked(situation: Situation) -> Iterator[Finding]:
    """Say so where the access point does not answer."""
    facts = situation.scheduler
    if facts.job is not None and not facts.state and facts.unknown:
        advice = "try again in a minute; a run that computes does not notice"
        yield note("scheduler-unknown", "the access point of HTCondor does not answer", next=advice)


def silent_machine(situation: Situation) -> Iterator[Finding]:
    """Say that the machine of a run does not answer, or that its results are on their way."""
    state = state_of(_job(situation))
    if situation.scheduler.state == "RUNNING" and state.rule:
        yield note(
            state.rule, state.text, "warn" if state.rule == "silent-machine" else "info", next=state.next or None
        )


def _size_of(group: NodeGroup) -> str:
    gpus = f", {group.gpus} GPUs" if group.gpus else ""
    return f"{group.cores} CPUs, {format_size(group.memory_bytes)} memory, {format_size(group.disk_bytes)} disk{gpus}"


def _asked_words(job: CondorJob) -> str:
    """Return what a job asks for: `1 CPU, 2.15 GB memory, 1.07 GB disk`."""
    asked = ((name, value) for name, value in asked_of(job).items() if value)
    return ", ".join(f"{_shown(name, value)} {_NAMES[name].rstrip('s' if value == 1 else '')}" for name, value in asked)


def _shown(name: str, value: float) -> str:
    return format_size(value) if name in ("memory", "disk") else str(int(value))


def _counted(states: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {state.casefold()}" for state, count in states.items())


def _meaning(situation: Situation) -> Meaning:
    facts = situation.scheduler
    newest = facts.own.get("at_home")
    go_on = f"`cordee resume {situation.run}` continues it" + (
        f" from {newest}, the newest checkpoint that is here"
        if newest
        else "; no checkpoint of it is here, so that it begins anew"
    )
    if facts.state == "CANCELLED":
        return Meaning(f"its job was removed: {facts.reason or 'nobody says by whom'}", go_on)
    if facts.signal:
        return Meaning("the first process of its job was ended by a signal", go_on)
    if facts.state == "FAILED":
        return Meaning("the first process of its job failed", go_on)
    if facts.state == "COMPLETED":
        return Meaning("its job ended in order but the run did not say its last word", go_on)
    return Meaning(facts.reason or "its job is not in the queue", go_on)


def _refusal(said: str, asked: Mapping[str, Any]) -> Finding | None:
    return explain_refusal(said)


REASONS = Reasons(
    (
        held_or_suspended,
        too_large,
        requirements_unmet,
        evicted,
        in_use,
        not_asked,
        not_known_to_the_scheduler,
    ),
    _meaning,
    _refusal,
    (silent_machine,),
)
