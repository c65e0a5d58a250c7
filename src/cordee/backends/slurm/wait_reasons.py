"""Why a run waits: the scheduler's reason with the numbers behind it, and what stands in the way besides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from cordee.backends.reasons.clauses import Rule, filled, note, setting
from cordee.backends.reasons.meaning import Meaning, Reasons, expected_start, not_known_to_the_scheduler
from cordee.backends.reasons.situation import Situation
from cordee.backends.slurm.details import DETAILED, described, limit_reached, told
from cordee.backends.slurm.limits import explain, read_limit
from cordee.backends.slurm.reasons import STATES
from cordee.backends.slurm.refusals import explain_refusal
from cordee.core.findings import Finding
from cordee.core.units import format_duration


def scheduler_reason(situation: Situation) -> Iterator[Finding]:
    """Say what the scheduler's reason means, with what is asked for and what is allowed where both are known."""
    facts = situation.scheduler
    if not facts.reason:
        state = STATES.get(facts.state)
        if state is not None and facts.state not in ("PENDING", "RUNNING"):
            yield told(situation, facts.state, state._replace(outlook="turn"))
        elif facts.job:
            yield told(situation, "none", explain("None"))
        return
    detailed = DETAILED.get(facts.reason)
    if detailed is not None:
        yield detailed(situation)
        return
    limit = read_limit(facts.reason)
    yield limit_reached(situation, limit) if limit else told(situation, facts.reason, explain(facts.reason))


def too_few_usable_nodes(situation: Situation) -> Iterator[Finding]:
    """Say so when nodes that are down or drained leave fewer than it asks for."""
    facts = situation.scheduler
    groups = facts.groups_of(facts.partition)
    broken = [group for group in groups if not group.usable]
    usable = sum(group.count for group in groups if group.usable)
    if broken and usable < situation.nodes_asked:
        least = max(1, usable)
        yield note(
            "too-few-nodes",
            f"it asks for {situation.nodes_asked} nodes and partition {facts.partition} has {usable} usable ones",
            next=f"wait for the operators, or set {setting('need.nodes', least)}"
            if usable
            else "wait for the operators",
            change={"need.nodes": least} if usable else None,
            nodes=[described(group) for group in broken],
        )


def failing_prolog(situation: Situation) -> Iterator[Finding]:
    """Say so when a node was drained because the site's preparation failed on it, perhaps for this very job."""
    facts = situation.scheduler
    nodes = [group.nodes for group in facts.groups_of(facts.partition) if "prolog" in group.reason.casefold()]
    if nodes and (facts.restarts or "launch" in facts.reason):
        text = f"the site's preparation of nodes (Prolog) failed on {', '.join(nodes)}"
        advice = "tell the operators; Slurm leaves these nodes out from now on"
        yield note("prolog", text, "warn", next=advice, nodes=",".join(nodes))


def start_in_line(situation: Situation) -> Iterator[Finding]:
    """Say when Slurm expects to start a job that waits for its turn; of others its estimate says nothing."""
    if situation.scheduler.reason in ("", "Priority", "Resources", "Reservation", "Licenses"):
        yield from expected_start(situation)


def longer_than_needed(situation: Situation) -> Iterator[Finding]:
    """Say that a job without a time limit of its own cannot be fitted into gaps."""
    facts = situation.scheduler
    limits = facts.limits_of(facts.partition)
    if facts.reason not in ("Priority", "Resources") or situation.part("request").get("time_s") is not None:
        return
    most = limits.max_time_s if limits else None
    took = format_duration(most) if most else "no limit"
    text = f"it has no time of its own, so that it asks for the longest that {facts.partition} gives ({took})"
    advice = 'set [need] time to what it takes, for example time = "2h": short jobs fit into gaps'
    yield note("no-time-asked", text, "info", next=advice)


WAITING: tuple[Rule, ...] = (
    scheduler_reason,
    not_known_to_the_scheduler,
    too_few_usable_nodes,
    failing_prolog,
    start_in_line,
    longer_than_needed,
)


def _meaning(situation: Situation) -> Meaning:
    facts = situation.scheduler
    known = STATES.get(facts.state) or explain(facts.reason)
    return Meaning(filled(known.meaning, situation), filled(known.next, situation))


def _refusal(said: str, asked: Mapping[str, Any]) -> Finding | None:
    return explain_refusal(said, qos=asked.get("qos"), account=asked.get("account"))


REASONS = Reasons(WAITING, _meaning, _refusal)
