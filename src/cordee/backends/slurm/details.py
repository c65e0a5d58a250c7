"""What a reason of the scheduler means for this job: the numbers behind it, and what to set instead."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from cordee.backends.facts import NodeGroup
from cordee.backends.reasons.clauses import filled, note, setting, time_value
from cordee.backends.reasons.situation import Situation
from cordee.backends.slurm.limits import SlurmLimit, explain, read_tres
from cordee.backends.slurm.reasons import WaitReason
from cordee.core.findings import Finding
from cordee.core.units import format_duration, format_size, parse_duration, utc_text

_SEVERITY = {"turn": "info", "act": "warn", "never": "error", "ended": "error"}
_MOST_GROUPS = 6
_LEAST_ROOM_S = 300.0
_ROOM = 0.9  # of the time before a reservation: a job also needs some to start


def told(situation: Situation, name: str, reason: WaitReason, **more: object) -> Finding:
    """Return the finding for a reason of the scheduler; `more` as for `note`."""
    text = filled(reason.meaning, situation) + (
        f" ({situation.scheduler.detail})" if situation.scheduler.detail else ""
    )
    rule = f"waits-{name.casefold().replace(' ', '-').replace('_', '-')}"
    more.setdefault("next", filled(reason.next, situation) or None)
    return note(rule, text, _SEVERITY[reason.outlook], reason=name, outlook=reason.outlook, **more)  # type: ignore[arg-type]


def limit_reached(situation: Situation, limit: SlurmLimit) -> Finding:
    """Return the finding for a limit of a QOS or an account, with its value where sacctmgr knows it."""
    facts = situation.scheduler
    column = next((name for name in limit.columns if facts.limits.get(name)), None)
    value = facts.limits[column] if column else None
    given, change, advice = None, None, None
    if limit.thing == "running time" and value and facts.time_limit_s and not limit.is_budget:
        allowed_s = _slurm_seconds(value)
        given = f"time limit {format_duration(facts.time_limit_s)}"
        if allowed_s:
            change = {"need.time": time_value(allowed_s)}
            advice = f"set {setting('need.time', change['need.time'])}, or use another [need] {_owner_key(limit)}"
    elif limit.thing in ("running jobs", "jobs in the queue") and facts.own_jobs:
        counts = ", ".join(f"{count} {state.lower()}" for state, count in sorted(facts.own_jobs.items()))
        given = f"your jobs: {counts}"
    allowed = f"{column} = {value}" if column else None
    reason = explain(facts.reason)
    most, wanted = read_tres(value or "").get(limit.tres), facts.tres.get(limit.tres)
    if wanted is not None and most is not None and not limit.is_budget and not limit.minutes:
        given = f"{limit.tres} = {wanted:.0f}"
        if wanted > most and limit.kind != "min":
            advice = f"ask for less with [need] {limit.key}, or use another [need] {_owner_key(limit)}"
            reason = reason._replace(meaning=f"{reason.meaning} and it asks for more by itself", outlook="never")
    more = {"next": advice} if advice else {}
    return told(situation, facts.reason, reason, given=given, allowed=allowed, change=change, **more)


def _owner_key(limit: SlurmLimit) -> str:
    return "qos" if limit.owner == "QOS" else "account"


def _slurm_seconds(text: str) -> float | None:
    try:
        return parse_duration(f"{text}min" if text.isdigit() else text)
    except ValueError:
        return None


def _time_limit(situation: Situation) -> Finding:
    facts = situation.scheduler
    limits = facts.limits_of(facts.partition)
    most = limits.max_time_s if limits else None
    wanted = facts.time_limit_s or 0.0
    fitting = [other.name for other in facts.partitions if wanted and (other.max_time_s or wanted) >= wanted]
    ways, change = [], {}
    if most:
        change = {"need.time": time_value(most)}
        ways.append(f"set {setting('need.time', change['need.time'])}")
    ways += [f"set {setting('need.partition', name)}" for name in fitting[:2] if name != facts.partition]
    if most:
        profile = f'[partitions.{facts.partition}] max_time = "{time_value(most)}"'
        ways.append(f"write {profile} into the cluster's profile, so that a longer training is split into segments")
    given = f"time limit {format_duration(wanted)}" if wanted else "no time limit"
    allowed = f"at most {format_duration(most)} in {facts.partition}" if most else None
    return _change(situation, given, allowed, ways, change)


def _node_limit(situation: Situation) -> Finding:
    facts = situation.scheduler
    limits = facts.limits_of(facts.partition)
    there = sum(group.count for group in facts.groups_of(facts.partition))
    most = min((number for number in (limits.max_nodes if limits else None, there or None) if number), default=None)
    asked = situation.nodes_asked
    spare = int(situation.part("request").get("spare_nodes", 0))
    change = {"need.nodes": max(1, most - spare)} if most else {}
    ways = [f"set {setting(key, value)}" for key, value in change.items()]
    for other in facts.partitions:
        room = sum(group.count for group in facts.groups_of(other.name))
        if other.name != facts.partition and min(other.max_nodes or room, room) >= asked:
            ways.append(f"set {setting('need.partition', other.name)}")
    given = f"{asked} nodes" + (f" ({spare} of them spare)" if spare else "")
    return _change(situation, given, f"at most {most} in {facts.partition}" if most else None, ways, change)


def _node_config(situation: Situation) -> Finding:
    facts = situation.scheduler
    groups = facts.groups_of(facts.partition)
    sizes = {_size_of(group.cores, group.memory_bytes, group.gpus): None for group in groups}
    cores = -(-facts.cores // situation.nodes_asked) if facts.cores else 0
    wanted = _size_of(cores, facts.memory_bytes or 0, facts.gpus_per_node or 0)
    given = f"on each node: {wanted}" if wanted else None
    ways = ["ask for less [need] memory, cpus_per_rank, ranks_per_node or gpus_per_node, or for another partition"]
    return _change(situation, given, "; ".join(sizes) or None, ways, {})


def _size_of(cores: int, memory_bytes: int, gpus: int) -> str:
    parts = (f"{cores} cores" if cores else "", f"{format_size(memory_bytes)} memory" if memory_bytes else "")
    return ", ".join(part for part in (*parts, f"{gpus} GPUs" if gpus else "") if part)


def _change(
    situation: Situation, given: str | None, allowed: str | None, ways: list[str], change: Mapping[str, object]
) -> Finding:
    name = situation.scheduler.reason
    advice = " or ".join(ways) or filled(explain(name).next, situation)
    return told(situation, name, explain(name), given=given, allowed=allowed, next=advice, change=change or None)


def _not_available(situation: Situation) -> Finding:
    facts = situation.scheduler
    reason = explain(facts.reason)
    broken = [described(group) for group in facts.groups_of(facts.partition) if not group.usable]
    reserved = facts.reason == "ReqNodeNotAvail" and "reserved" in facts.detail.casefold()
    if reserved and (facts.reservations or not broken):  # Slurm 24 says "May be reserved" of a drained node, too
        return _reserved_for_others(situation, reason)
    named = "; ".join(broken[:_MOST_GROUPS]) or ("" if facts.reason.startswith("Nodes") else facts.detail)
    detailed = replace(situation, scheduler=replace(facts, detail=named))
    return told(detailed, facts.reason, reason, nodes=broken or None)


def _reserved_for_others(situation: Situation, reason: WaitReason) -> Finding:
    facts = situation.scheduler
    coming = [one for one in facts.reservations if one.starts_at and one.starts_at > situation.now]
    text = "nodes that it needs are reserved before it would end"
    advice = "ask for a [need] time that ends before the reservation begins (`scontrol show reservation`), or wait"
    given = f"time limit {format_duration(facts.time_limit_s)}" if facts.time_limit_s else "no time limit"
    if not coming or coming[0].starts_at is None:
        return told(situation, facts.reason, reason._replace(meaning=text, outlook="turn"), given=given, next=advice)
    room = coming[0].starts_at - situation.now
    allowed = f"{coming[0].name} begins in {format_duration(room)}, at {utc_text(coming[0].starts_at)[:16]}Z"
    change = {"need.time": time_value(room * _ROOM // 60 * 60)} if room > _LEAST_ROOM_S else None
    if change:
        advice = f"set {setting('need.time', change['need.time'])} so that it ends before, or wait"
    text += f" (reservation {coming[0].name})"
    plain = replace(situation, scheduler=replace(facts, detail=""))
    reason = reason._replace(meaning=text, outlook="turn")
    return told(plain, facts.reason, reason, given=given, allowed=allowed, next=advice, change=change)


def _reservation(situation: Situation) -> Finding:
    facts = situation.scheduler
    reason = explain(facts.reason)
    own = next((one for one in facts.reservations if one.name == facts.reservation), None)
    if own is None or own.starts_at is None or own.starts_at < situation.now:
        return told(situation, facts.reason, reason, given=facts.reservation or None)
    text = f"its reservation {own.name} begins at {utc_text(own.starts_at)[:16]}Z"
    return told(situation, facts.reason, reason._replace(meaning=text))


def described(group: NodeGroup) -> str:
    """Return nodes with their state and why: `n[2-4] drain: bad GPU`."""
    why = f": {group.reason}" if group.reason not in ("", "none", "None") else ""
    return f"{group.nodes} {group.state}{why}"


def _dependency(situation: Situation) -> Finding:
    facts = situation.scheduler
    return told(situation, facts.reason, explain(facts.reason), given=facts.dependency or None)


def _begin_time(situation: Situation) -> Finding:
    facts = situation.scheduler
    reason = explain(facts.reason)
    if facts.eligible_at is None:
        return told(situation, facts.reason, reason)
    wait = facts.eligible_at - situation.now
    when = utc_text(facts.eligible_at)[:19] + "Z"
    if facts.restarts and wait < 300:
        text = f"it was requeued and Slurm lets a requeued job begin only after a pause, at {when}"
        return told(situation, facts.reason, reason._replace(meaning=text, next="wait"))
    return told(situation, facts.reason, reason._replace(meaning=f"it may not begin before {when}"))


def _constraints(situation: Situation) -> Finding:
    facts = situation.scheduler
    features = sorted({name for group in facts.groups_of(facts.partition) for name in group.features})
    return told(
        situation,
        facts.reason,
        explain(facts.reason),
        given=f'[need] constraint = "{facts.features}"' if facts.features else None,
        allowed=features or None,
    )


def _account(situation: Situation) -> Finding:
    facts = situation.scheduler
    return told(
        situation, facts.reason, explain(facts.reason), given=facts.account or None, allowed=facts.accounts or None
    )


def _qos(situation: Situation) -> Finding:
    facts = situation.scheduler
    return told(
        situation, facts.reason, explain(facts.reason), given=facts.qos or None, allowed=facts.qos_allowed or None
    )


def _queue(situation: Situation) -> Finding:
    facts = situation.scheduler
    idle = sum(group.count for group in facts.groups_of(facts.partition) if group.idle)
    usable = sum(group.count for group in facts.groups_of(facts.partition) if group.usable)
    known = bool(facts.groups_of(facts.partition))
    allowed = f"{idle} idle of {usable} usable nodes in {facts.partition}" if known else None
    given = f"{situation.nodes_asked} {'node' if situation.nodes_asked == 1 else 'nodes'}"
    if facts.time_limit_s:
        given += f" for {format_duration(facts.time_limit_s)}"
    parts = {name: value for name, value in facts.priority.items() if value} or None
    return told(situation, facts.reason, explain(facts.reason), given=given, allowed=allowed, priority=parts)


DETAILED: dict[str, Callable[[Situation], Finding]] = {
    "PartitionTimeLimit": _time_limit,
    "PartitionNodeLimit": _node_limit,
    "PartitionConfig": _node_config,
    "MaxMemPerLimit": _node_config,
    "ReqNodeNotAvail": _not_available,
    "Nodes required for job are DOWN": _not_available,
    "NodeDown": _not_available,
    "Reservation": _reservation,
    "Dependency": _dependency,
    "DependencyNeverSatisfied": _dependency,
    "BeginTime": _begin_time,
    "BadConstraints": _constraints,
    "InvalidAccount": _account,
    "AccountNotAllowed": _account,
    "InvalidQOS": _qos,
    "QOSNotAllowed": _qos,
    "Priority": _queue,
    "Resources": _queue,
}
