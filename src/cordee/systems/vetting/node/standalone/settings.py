"""How `cordee vet` was called, and how patient its tasks are with each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Optional


@dataclass(frozen=True)
class VetOptions:
    """What the command line says.

    Attributes:
        load: returns the resolved protocol (`cordee.protocol/1`); called by the task that conducts, and by no other.
        folder: where the results go; all nodes see it.
        min_nodes: fewer healthy nodes than that end in abort; None: what the protocol says.
        as_json: whether the document is printed instead of the table.
        deadline_s: replaces the protocol's deadline for everything.
        root: where the host's files are seen, when not at `/`.
    """

    load: Callable[[], dict[str, Any]]
    folder: str = "."
    min_nodes: Optional[int] = None
    as_json: bool = False
    deadline_s: Optional[float] = None
    root: Optional[str] = None


@dataclass(frozen=True)
class VetPatience:
    """Seconds that tasks wait for each other.

    Attributes:
        arrive: until a node that has not come counts as silent.
        first: until the first task of the second node conducts in place of one that never came; the third's twice that.
        give_up: until a task that finds nobody ends.
        beat: between two signs of life of the one who conducts.
        silent: without a sign until it counts as lost.
        next: between two candidates for its place.
        answer: for the last roll call, and for tasks to take their leave.
    """

    arrive: float = 30.0
    first: float = 10.0
    give_up: float = 60.0
    beat: float = 0.5
    silent: float = 5.0
    next: float = 5.0
    answer: float = 0.5


def patience(deadline_s: Optional[float], tasks: int) -> VetPatience:
    """Return the patience that fits a deadline for everything (None: not known yet) and a number of tasks."""
    beat = 0.5 if tasks <= 1000 else 2.0
    if deadline_s is None:
        return VetPatience(beat=beat, silent=10 * beat)
    most = max(1.0, deadline_s)
    return VetPatience(
        arrive=min(30.0, most / 2),
        first=min(10.0, most / 4),
        give_up=min(60.0, most + 2.0),
        beat=beat,
        silent=min(10 * beat, max(1.5, most / 4)),
    )
