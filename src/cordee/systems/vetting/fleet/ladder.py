"""What comes after a drain: recovery step by step, then vettings, then back to work. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from cordee.core.units import format_duration
from cordee.systems.vetting.fleet.audit import Deed
from cordee.systems.vetting.fleet.cluster import SlurmNode
from cordee.systems.vetting.fleet.observations import Clean, NodeRecord
from cordee.systems.vetting.fleet.proposals import Proposal

if TYPE_CHECKING:
    from cordee.systems.vetting.fleet.situation import FleetSituation

STEPS = ("reset_gpu", "reboot", "diagnose", "ticket")
_BEGIN = {"reset_gpu": "reset_gpu", "ticket": "ticket"}
_WORDS = {
    "reset_gpu": "resets its GPUs",
    "reboot": "reboots it",
    "diagnose": "runs the deep diagnosis",
    "ticket": "opens a ticket",
}


def next_steps(
    state: SlurmNode, record: NodeRecord, deeds: Sequence[Deed], drain: Deed, situation: FleetSituation
) -> list[Proposal]:
    """Return what should happen with a node that we have drained: nothing while it still works, else the next step of the
    ladder, a vetting, or its return.

    Args:
        state: of the node.
        record: what the history says of it.
        deeds: ours on the node, the oldest first.
        drain: the one that holds it.
        situation: policy, commands, time.
    """
    after = [deed for deed in deeds if deed.at >= drain.at and deed.id != drain.id]
    steps = [deed for deed in after if deed.action in STEPS and (deed.action, deed.phase) != ("ticket", "failed")]
    since = steps[-1].at if steps else drain.at
    drains = sum(deed.action == "drain" and deed.phase == "done" for deed in deeds)
    base = Proposal(
        action="resume",
        node=state.name,
        reason=drain.reason,
        rule=drain.rule,
        kind=drain.kind,
        evidence=tuple(fault for fault in record.faults if fault.rule == drain.rule)[-5:],
        partitions=state.partitions,
        check=drain.check,
        gpu=drain.gpu,
        drain_id=drain.id,
    )
    if drains > situation.policy.drains_without_person:
        told = any(deed.action == "ticket" for deed in steps)
        why = f"drained {drains} times in {situation.policy.days:g} days by us: a person decides"
        return [] if told or "ticket" not in situation.commands else [replace(base, action="ticket", why=why)]
    if state.working or state.maintenance:
        return []
    bad_since = any(fault.at > since and fault.action != "none" for fault in record.faults)
    bad_since = bad_since or bool(steps and steps[-1].phase == "failed")
    clean = clean_streak(record, since)
    good = [vetting for vetting in clean if drain.check in vetting.passed]
    needed = situation.policy.clean_vettings
    if len(good) >= needed:
        why = f"{len(good)} clean vettings in a row, in which {drain.check} passed"
        return [replace(base, why=why)]
    if len(clean) >= needed:
        held = f"{len(clean)} clean vettings, but {drain.check} passed in only {len(good)} of them"
        return [replace(base, why="it looks well", held=held)]
    if bad_since or not steps:
        step = next_step(drain, [deed.action for deed in steps], situation.commands)
        if step is not None:
            number = len(steps) + 1
            why = f"step {number} after the drain for {drain.rule}: {_WORDS[step]}"
            return [replace(base, action=step, why=why)]
    return _vetting(after, base, situation)


def next_step(drain: Deed, done: Sequence[str], commands: frozenset[str]) -> str | None:
    """Return the next step of the ladder that the site has a command for, None when there is none left."""
    begin = STEPS.index(_BEGIN.get(drain.first_step, "reboot"))
    reached = max((STEPS.index(action) for action in done), default=begin - 1)
    return next((step for step in STEPS[max(begin, reached + 1) :] if step in commands), None)


def clean_streak(record: NodeRecord, since: float) -> list[Clean]:
    """Return the vettings since a time that found the node healthy, from the last one that did not on."""
    worst = max([since, *(fault.at for fault in record.faults)])
    return [vetting for vetting in record.clean if vetting.at > worst]


def _vetting(after: Sequence[Deed], base: Proposal, situation: FleetSituation) -> list[Proposal]:
    """Return the vetting that the site's own command should hold now, if it has one and the last was not just now."""
    if "vet" not in situation.commands:
        return []
    last = max((deed.at for deed in after if deed.action == "vet"), default=0.0)
    if situation.now - last < situation.policy.vet_every:
        return []
    why = f"drained nodes are vetted every {format_duration(situation.policy.vet_every)} until they are well"
    return [replace(base, action="vet", why=why)]
