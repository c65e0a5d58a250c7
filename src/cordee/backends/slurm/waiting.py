"""Why a run waits: the scheduler's reason with the numbers behind it, and what stands in the way besides."""

from __future__ import annotations

from collections.abc import Iterator

from cordee.backends.slurm.details import DETAILED, described, limit_reached, told
from cordee.backends.slurm.limits import explain, read_limit
from cordee.backends.slurm.reasons import STATES
from cordee.findings import Finding
from cordee.insight.advise.situation import Situation
from cordee.insight.advise.wording import Rule, note, setting
from cordee.units import format_duration, utc_text

_SOON_S = 60.0


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


def not_known_to_the_scheduler(situation: Situation) -> Iterator[Finding]:
    """Say so when a run waits and the scheduler has no job of it."""
    facts = situation.scheduler
    if facts.job is None and not facts.state:
        if facts.unknown:
            yield note("scheduler-unknown", "the scheduler could not be asked", next="try again in a minute")
        else:
            text = "the scheduler has no job of it: it was never placed, or ended before its first word"
            yield note("no-job", text, "error", next=f"`cordee resume {situation.run}` submits it again")


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


def expected_start(situation: Situation) -> Iterator[Finding]:
    """Say when the scheduler expects to start it."""
    facts = situation.scheduler
    if facts.starts_at is None or facts.reason not in ("", "Priority", "Resources", "Reservation", "Licenses"):
        return
    wait = facts.starts_at - situation.now
    when = "within a minute" if wait < _SOON_S else f"in {format_duration(wait)}, at {utc_text(facts.starts_at)[:16]}Z"
    text = f"the scheduler expects to start it {when}; jobs that end early bring it forward"
    yield note("expected-start", text, "info", starts_at=facts.starts_at)


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
    expected_start,
    longer_than_needed,
)
