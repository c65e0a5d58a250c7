"""Every fault at every message and every line of the journal of a run of two nodes, and every pair of the worst of them."""

from __future__ import annotations

import random
from itertools import combinations

from support.simulation.faults import KINDS, LASTING, VirtualFault
from support.simulation.seeds import Case, simulate
from support.simulation.surroundings import RunScript

SCRIPT = RunScript(nodes=2, spares=1, steps=8, every=3, setup_s=1.0)
# What is lost or ends at a moment; all other kinds are tried one at a time.
PAIRED = ("lose", "kill_rank", "kill_agent", "kill_supervisor", "power_off")
_OF_A_NODE = ("kill_rank", "kill_agent", "power_off")
_MOST_OF_A_NAME = 2
_SECONDS = 12.0


def moments() -> list[str]:
    """Return the moments of the run without faults, in the words of `VirtualFault.on`: of each name the first two."""
    seen = simulate(Case(0, SCRIPT, ())).moments
    names = sorted(
        name for name in seen if name != "event submitted"
    )  # before the allocation there is nothing to befall
    return [f"{name} {n}" for name in names for n in range(1, min(seen[name], _MOST_OF_A_NAME) + 1)]


def cases() -> list[Case]:
    """Return all single faults, then all pairs, in an order in which any part of them is like the whole."""
    singles = [fault for moment in moments() for kind in KINDS for fault in _at(moment, kind)]
    points = [fault for fault in singles if fault.kind in PAIRED]
    pairs = [pair for pair in combinations(points, 2) if pair[0].on != pair[1].on or pair[0].kind != pair[1].kind]
    alone = [(fault,) for fault in singles]
    for some in (alone, pairs):
        random.Random("points").shuffle(some)
    return [Case(number, SCRIPT, faults) for number, faults in enumerate([*alone, *pairs])]


def _at(moment: str, kind: str) -> list[VirtualFault]:
    seconds = _SECONDS if kind in LASTING else 0.0
    nodes = range(SCRIPT.nodes) if kind in _OF_A_NODE else range(1)
    return [VirtualFault(kind, 0.0, moment, node, seconds) for node in nodes]
