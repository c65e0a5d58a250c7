"""Every kind of fault in every phase of a run: faults that wait for a phase to begin, and what leads a run to rare phases."""

from __future__ import annotations

import random

from support.simulation.faults import KINDS, LASTING, VirtualFault
from support.simulation.rules import PHASES
from support.simulation.seeds import Case
from support.simulation.surroundings import RunScript

# What brings a run to phases that it does not come to by itself, soon after it has begun to train.
_LEADS = {
    "queue 2": ("preempt", "requeue", "time_limit"),
    "connect 2": ("kill_supervisor", "preempt"),
    "stop 1": ("time_limit", "preempt", "cancel"),
    "restart 1": ("kill_rank", "bug", "kill_agent"),
}
_LEAD_S = 0.7
_TIMES = {"queue": ("1", "2", "2"), "connect": ("1", "1", "2")}
# How long after a phase has begun; short phases are over within milliseconds.
_LATER_S = {
    "connect": (0.0, 0.1, 0.3),
    "vet": (0.0, 0.001, 0.3, 1.0),
    "start": (0.0, 0.001, 0.003),
    "train": (0.0, 0.001, 0.3, 1.0),
    "stop": (0.0, 0.001, 0.02),
}
_AT_ONCE_S = (0.0, 0.0, 0.001)
_OF_A_PHASE = 3
_SECONDS = (0.5, 2.0, 6.0, 12.0)


def meeting(number: int) -> Case:
    """Return a case in which each phase of a short run meets some faults, if the run comes to that phase.

    In a row of cases all kinds wait for each phase as often.
    """
    chance = random.Random(f"meeting-{number}")
    script = RunScript(
        spares=chance.choice((0, 1)),
        per_node=chance.choice((1, 1, 2)),
        steps=8,
        every=chance.choice((3, 1000)),
        setup_s=chance.choice((0.0, 1.0)),
        notice_s=chance.choice((0.001, 1.0)),
        stopping=chance.random() < 0.8,
        disk_s=chance.choice((0.0005, 0.02)),
    )
    faults: list[VirtualFault] = []
    for phase in PHASES:
        begun = f"{phase} {chance.choice(_TIMES.get(phase, '1'))}"
        if begun in _LEADS:
            faults.append(_at(chance, chance.choice(_LEADS[begun]), "train 1", _LEAD_S))
        for kind in _kinds(number, phase):
            faults.append(_at(chance, kind, begun, chance.choice(_LATER_S.get(phase, _AT_ONCE_S))))
    return Case(number, script, tuple(faults))


def _kinds(number: int, phase: str) -> list[str]:
    """Return the kinds of a case for a phase: all come in turn, next to others each time."""
    row, place = divmod(number * _OF_A_PHASE, len(KINDS))
    rows = [random.Random(f"{phase}-{row + more}").sample(KINDS, len(KINDS)) for more in range(2)]
    return (rows[0] + rows[1])[place : place + _OF_A_PHASE]


def _at(chance: random.Random, kind: str, begun: str, later_s: float) -> VirtualFault:
    seconds = chance.choice(_SECONDS) if kind in LASTING else 0.0
    return VirtualFault(kind, later_s, f"phase {begun}", chance.randrange(2), seconds)
