"""What advice is given from: a run's state, its plan, what the scheduler says, the last words, memory and disks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from cordee.backends.facts import GONE, HELD, SUSPENDED, SchedulerFacts
from cordee.backends.slurm.node.commands import ENDED_STATES, WAITING_STATES
from cordee.runs.state import RunState

Where = Literal["waiting", "starting", "running", "finished", "failed", "cancelled"]

STARTING_STATES = frozenset(["CONFIGURING", "POWER_UP_NODE"])


@dataclass(frozen=True)
class MemoryFacts:
    """Memory of the node that used most of it, in bytes; None where nothing was measured.

    `killed_for_memory` are the pids that the log of this machine's kernel says it ended for memory, None where it may
    not be read.
    """

    peak_bytes: float | None = None
    limit_bytes: float | None = None
    killed_for_memory: tuple[int, ...] | None = None

    @property
    def share(self) -> float | None:
        """The peak's part (0-1) of the limit."""
        return self.peak_bytes / self.limit_bytes if self.peak_bytes and self.limit_bytes else None


@dataclass(frozen=True)
class DiskFacts:
    """A file system that the run writes to, as it is now; `files_free` is None where files are not counted."""

    what: str
    path: str
    free_bytes: int
    total_bytes: int
    files_free: int | None = None
    writable: bool = True


@dataclass(frozen=True)
class StuckChild:
    """A run below a run that is held, suspended, waits or has failed; `alike` others do so for the same reason."""

    name: str
    situation: Situation
    alike: int = 0


@dataclass(frozen=True)
class Situation:
    """Everything that a rule may look at.

    Attributes:
        state: the replay of the journal.
        plan: plan.json, empty when it cannot be read.
        output: last lines of the rank that failed first, or of the set-up lines.
        own_output: last lines of the supervisor's own log, as long as the run has not ended.
        now: epoch seconds.
        silent_s: seconds since the last sign of life in the journal.
        stuck: the first children of a run that has not ended, one for each reason.
        more_stuck: how many children are stuck for yet other reasons.
    """

    run: str
    state: RunState
    plan: dict[str, Any]
    scheduler: SchedulerFacts = field(default_factory=SchedulerFacts)
    output: tuple[str, ...] = ()
    own_output: tuple[str, ...] = ()
    memory: MemoryFacts = MemoryFacts()
    disks: tuple[DiskFacts, ...] = ()
    now: float = 0.0
    silent_s: float = 0.0
    unknown: tuple[str, ...] = ()
    stuck: tuple[StuckChild, ...] = ()
    more_stuck: int = 0

    @property
    def step(self) -> dict[str, Any]:
        """The plan's only step, empty when the plan cannot be read."""
        steps = self.plan.get("steps")
        return steps[0] if isinstance(steps, list) and steps and isinstance(steps[0], dict) else {}

    def part(self, name: str) -> dict[str, Any]:
        """Return a table of the step: request, tasks, checkpoint, segment; empty when it is not there."""
        found = self.step.get(name)
        return found if isinstance(found, dict) else {}

    @property
    def backend(self) -> str:
        """The name of the back end that runs it, empty when neither the scheduler nor the plan says."""
        return self.scheduler.scheduler or str(self.plan.get("backend", ""))

    @property
    def nodes_asked(self) -> int:
        """How many nodes the job asks for, spares too."""
        asked = self.scheduler.node_count
        return asked or int(self.part("request").get("nodes", 1)) + int(self.part("request").get("spare_nodes", 0))

    @property
    def where(self) -> Where:
        """Where the run is: the journal's word for its end, else the scheduler's word for its job.

        A run that has ended waits where its job is held: what it made has not come home.
        """
        job = self.scheduler.state
        if job != HELD and self.state.state in ("finished", "failed", "cancelled"):
            return self.state.state  # type: ignore[return-value]
        if job in STARTING_STATES:
            return "starting"
        if job in WAITING_STATES or job in (HELD, SUSPENDED):
            return "waiting"
        if job == "CANCELLED":
            return "cancelled"
        if job in ENDED_STATES or job == GONE:
            return "failed"
        if self.state.state == "running":
            return "running"
        return "starting" if job else "waiting"
