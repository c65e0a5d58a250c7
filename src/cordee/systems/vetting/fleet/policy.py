"""What should be done about nodes: pure functions from the history and the cluster's state to proposals.

A hard fault drains a node at once; a soft one when two jobs with different partners confirm it. A node that was drained
climbs a ladder (reset, reboot, deep diagnosis, ticket) and comes back after two clean vettings; the third time a person
decides. What an administrator did is never touched, and only a few nodes of a partition are drained in a day.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from cordee.job.fleet_site import OffenderPolicy
from cordee.systems.vetting.fleet.audit import Deed
from cordee.systems.vetting.fleet.cluster import SlurmNode
from cordee.systems.vetting.fleet.ladder import next_steps
from cordee.systems.vetting.fleet.observations import NodeFault, NodeRecord
from cordee.systems.vetting.fleet.proposals import Proposal, reason_of
from cordee.systems.vetting.fleet.situation import DAY_S, FleetSituation


@dataclass(frozen=True)
class Conviction:
    """Why a node is held to be bad: one hard fault, or a soft one with its confirmations.

    Attributes:
        faults: those that count, one for each job, the newest last.
        confirmed: whether they are enough.
        missing: what is not yet there, in words; empty when confirmed.
    """

    node: str
    rule: str
    kind: str
    scope: str
    action: str
    faults: tuple[NodeFault, ...]
    confirmed: bool
    missing: str = ""

    @property
    def last(self) -> NodeFault:
        """The newest of its faults."""
        return self.faults[-1]


def convictions(record: NodeRecord, policy: OffenderPolicy, since: float = 0.0) -> list[Conviction]:
    """Return what a node is accused of since a time, the gravest first: hard, then confirmed, then the newest."""
    by_rule: dict[str, list[NodeFault]] = {}
    for fault in record.faults:
        if fault.at > since and fault.action != "none" and fault.scope in ("node", "user"):
            by_rule.setdefault(fault.rule, []).append(fault)
    found = [_weigh(record.node, faults, policy) for faults in by_rule.values()]
    return sorted(found, key=lambda each: (each.kind != "hard", not each.confirmed, -each.last.at, each.rule))


def _weigh(node: str, faults: Sequence[NodeFault], policy: OffenderPolicy) -> Conviction:
    newest = faults[-1]
    if newest.kind == "hard":
        return Conviction(node, newest.rule, "hard", newest.scope, newest.action, (newest,), True)
    # Alone, a node may only have met a threshold that none could keep, unless the site chose the protocol.
    contrasted = [fault for fault in faults if fault.partners or policy.protocols]
    partners = frozenset[str]().union(*(fault.partners for fault in contrasted))
    by_job = {fault.job: fault for fault in contrasted or faults}
    counted = tuple(sorted(by_job.values(), key=lambda fault: fault.at))
    missing = ""
    if not contrasted:
        missing = "no other node was well in the same vetting"
    elif len(counted) < policy.confirmations:
        missing = f"{len(counted)} of {policy.confirmations} jobs"
    elif any(fault.relative for fault in faults) and len(partners) < 2:
        missing = f"always beside the same node, {''.join(partners)}"
    return Conviction(node, newest.rule, "soft", newest.scope, newest.action, counted, not missing, missing)


@dataclass
class _Room:
    """How many more nodes may be drained today, by partition."""

    left: dict[str, int]

    def holds(self, partitions: Sequence[str]) -> str | None:
        """Return the partition that is full, None when there is room."""
        return next((name for name in partitions if self.left.get(name, 1) < 1), None)

    def take(self, partitions: Sequence[str]) -> None:
        for name in partitions:
            self.left[name] = self.left.get(name, 1) - 1


def propose(situation: FleetSituation) -> list[Proposal]:
    """Return what should be done now, each once: what may be done first, then what is held back, with the reason."""
    room = _Room(room_left(situation))
    drains, rest = [], []
    for name in sorted(situation.nodes):
        state, record = situation.nodes[name], situation.records.get(name) or NodeRecord(name)
        deeds = situation.deeds_of(name)
        drain = ours(state, deeds)
        if drain is not None:
            rest += next_steps(state, record, deeds, drain, situation)
        else:
            wanted = _wanted_drain(state, record, deeds, situation)
            drains += [wanted] if wanted else []
    drains.sort(key=lambda proposal: (proposal.kind != "hard", -len(proposal.evidence), proposal.node))
    proposals = []
    for proposal in drains:
        if proposal.held is None:
            full = room.holds(proposal.partitions)
            if full is None:
                room.take(proposal.partitions)
            else:
                proposal = replace(proposal, held=_full(full, situation))
        proposals.append(proposal)
    return sorted(proposals + rest, key=lambda proposal: proposal.held is not None)


def room_left(situation: FleetSituation) -> dict[str, int]:
    """Return how many more nodes of each partition may be drained today: a share of it, and at least one, less those
    that were drained in the last 24 hours."""
    sizes: dict[str, int] = {}
    for state in situation.nodes.values():
        for partition in state.partitions:
            sizes[partition] = sizes.get(partition, 0) + 1
    left = {name: max(1, math.floor(size * situation.policy.daily_ratio)) for name, size in sizes.items()}
    for deed in situation.deeds:
        if deed.action == "drain" and deed.phase != "failed" and deed.at > situation.now - DAY_S:
            state_now = situation.nodes.get(deed.node)
            for partition in state_now.partitions if state_now else ():
                left[partition] -= 1
    return left


def ours(state: SlurmNode, deeds: Sequence[Deed]) -> Deed | None:
    """Return our drain that holds the node: the last one, if it was not taken back and its reason is still there, word
    for word. Whatever a person has changed is theirs."""
    last = next((deed for deed in reversed(deeds) if deed.action in ("drain", "resume") and deed.phase == "done"), None)
    if last is None or last.action != "drain" or not state.drained or state.reason != last.reason:
        return None
    return last


def _wanted_drain(
    state: SlurmNode, record: NodeRecord, deeds: Sequence[Deed], situation: FleetSituation
) -> Proposal | None:
    last = next((deed for deed in reversed(deeds) if deed.action in ("drain", "resume") and deed.phase == "done"), None)
    found = convictions(record, situation.policy, since=last.at if last else 0.0)
    guilty = next((each for each in found if each.confirmed), None)
    if guilty is None:
        return None
    drains = sum(deed.action == "drain" and deed.phase == "done" for deed in deeds)
    why = f"{guilty.rule}: {guilty.last.evidence}" if guilty.kind == "hard" else (
        f"{guilty.rule} in {len(guilty.faults)} jobs, last: {guilty.last.evidence}"
    )  # fmt: skip
    if drains + 1 > situation.policy.drains_without_person:
        why += f"; drain number {drains + 1} in {situation.policy.days:g} days: a person decides when it comes back"
    return Proposal(
        action="drain",
        node=state.name,
        reason=reason_of(guilty.scope, guilty.rule, guilty.last.slurm_job, guilty.last.at),
        rule=guilty.rule,
        kind=guilty.kind,
        why=why,
        evidence=guilty.faults,
        partitions=state.partitions,
        check=guilty.last.check,
        first_step=guilty.action,
        gpu=_gpus(guilty.last),
        held=_hands_off(state),
    )


def _gpus(fault: NodeFault) -> str:
    """Return the indices of the GPUs that are at fault, joined by commas; empty when the fault does not tell them apart."""
    named = [device for device in fault.devices if device.get("fault")]
    devices = named or (fault.devices if len(fault.devices) == 1 else ())
    indices = {index for device in devices if isinstance(index := device.get("device"), int)}
    return ",".join(map(str, sorted(indices)))


def _hands_off(state: SlurmNode) -> str | None:
    """Return why a node is left alone, None when it may be drained."""
    if state.drained:
        return f"it is drained already, not by us: {state.reason or 'without a reason'}"
    if state.down:
        return f"it is down: {state.reason or 'without a reason'}"
    if state.maintenance:
        return "it is under maintenance"
    if state.reserved:
        return "it is reserved"
    return None


def _full(partition: str, situation: FleetSituation) -> str:
    ratio = situation.policy.daily_ratio
    return f"partition {partition} has had its drains of today (at most {ratio:.0%} of its nodes a day, at least one)"
