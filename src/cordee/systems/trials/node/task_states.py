"""What became of each task, as the journal of the tasks says: a replay, in the order of its epochs. Pure."""

from __future__ import annotations

from typing import Any, Iterable, Mapping, NamedTuple, Optional, Union

# How one try of a task ended: it is done, has failed for good, is to be run again, or was broken off through no fault of its own.
DONE, FAILED, AGAIN, LOST = "done", "failed", "again", "lost"
# Events of the journal.
GIVEN, ENDED, RETRIED, ADDED = "tasks_given", "tasks_ended", "tasks_retried", "tasks_added"
# Of sweeps: a sampler has chosen trials, somebody wants more of them, trials have come to steps at which they are compared.
MADE, WANTED, REACHED = "trials_made", "trials_wanted", "trials_reached"
# Why a trial that was behind others ended.
HALVED = "halved"


class TaskEnd(NamedTuple):
    """How one try of a task ended.

    Attributes:
        number: of the try, from 1.
        outcome: done, failed, again or lost.
        reason: as TaskExit has it, or `halved`.
        seconds: that it took.
        peak_bytes: the most memory that one of its processes had; 0: unknown.
        cpu_s: CPU time; 0: unknown.
        text: why it failed, where something is known.
        value: of a trial: what it logged last under the name of the goal; of several goals a list.
        node: on which.
    """

    id: int
    number: int
    outcome: str
    code: Optional[int]
    signal: Optional[str]
    reason: str
    seconds: float
    peak_bytes: int = 0
    cpu_s: float = 0.0
    text: str = ""
    value: Union[float, list[float], None] = None
    node: str = ""

    @property
    def kind(self) -> str:
        """Why it failed: `time`, `signal`, `value` (a trial without a finite number) or `exit`."""
        if self.reason == "deadline":
            return "time"
        if self.signal is not None:
            return "signal"
        return "value" if self.reason == "exited" and self.code is None else "exit"

    def row(self) -> list[Any]:
        """Return it as it stands in the journal, in an event that names the node."""
        row = list(self[:-1])
        while (len(row) > 7 and row[-1] is None) or row[-1] == "":
            row.pop()
        return row


class TaskState:
    """One task: how often it was given to a node, how its last try ended, how often it failed for each reason."""

    __slots__ = ("end", "failures", "given", "node", "runs")

    def __init__(self) -> None:
        self.given = 0
        self.failures: dict[str, int] = {}
        self.runs = False
        self.node = ""
        self.end: Optional[TaskEnd] = None

    @property
    def state(self) -> str:
        """Of the task: done, failed, running (given to a node) or waiting."""
        if self.runs:
            return "running"
        return self.end.outcome if self.end is not None and self.end.outcome in (DONE, FAILED) else "waiting"

    def may_fail(self, kind: str, retries: Union[int, Mapping[str, int]]) -> bool:
        """Return whether a try may fail for this reason and be followed by another.

        Args:
            retries: for all reasons together, or for each.
        """
        if isinstance(retries, int):
            return sum(self.failures.values()) < retries
        return self.failures.get(kind, 0) < retries.get(kind, 0)


class TaskStates:
    """All tasks of a run that something is known of.

    Attributes:
        by_id: by their numbers.
        done, failed: how many.
        files: of tasks that were added; digests: of the files that these were read from.
        made: documents of trials that a sampler has chosen while the sweep ran.
        wanted: how many trials were asked for beyond the first; table: the sweep's, where it was changed for them.
        reached: by trial, the rungs that it came to and its value there.
        began, ended: when the first was given, and the last thing happened, in the journal's UTC text; None: nothing has.
    """

    def __init__(self) -> None:
        self.by_id: dict[int, TaskState] = {}
        self.done = self.failed = 0
        self.files: list[str] = []
        self.digests: list[str] = []
        self.made: list[dict[str, Any]] = []
        self.wanted = 0
        self.table: Optional[Mapping[str, Any]] = None
        self.reached: dict[int, list[tuple[int, Optional[float]]]] = {}
        self.began: Optional[str] = None
        self.ended: Optional[str] = None

    def of(self, task: int) -> TaskState:
        """Return the state of a task."""
        state = self.by_id.get(task)
        if state is None:
            state = self.by_id[task] = TaskState()
        return state

    def given(self, task: int, number: int, node: str = "") -> None:
        """A node was given a task."""
        state = self.of(task)
        state.given, state.runs, state.node = max(state.given, number), True, node

    def ends(self, end: TaskEnd) -> bool:
        """Take how a try ended; returns False for one that is known already, or is none of the last."""
        state = self.of(end.id)
        if (
            state.state in (DONE, FAILED)
            or end.number != state.given
            or (state.end is not None and state.end.number == end.number)
        ):
            return False
        state.runs, state.end = False, end
        if end.outcome in (AGAIN, FAILED):
            state.failures[end.kind] = state.failures.get(end.kind, 0) + 1
        self.done += end.outcome == DONE
        self.failed += end.outcome == FAILED
        return True

    def retry(self, tasks: Iterable[int]) -> list[int]:
        """Have tasks that failed for good run again; returns which."""
        again = [task for task in tasks if self.of(task).state == FAILED]
        for task in again:
            state = self.of(task)
            assert state.end is not None
            state.end, state.failures = state.end._replace(outcome=AGAIN), {}
        self.failed -= len(again)
        return again

    def take(self, event: Mapping[str, Any]) -> None:
        """Take one event of the journal; what is not known is passed over."""
        kind, node = event.get("event"), str(event.get("node", ""))
        if kind == GIVEN:
            self.began = self.began or str(event.get("time"))
            for task, number in event["tasks"]:
                self.given(task, number, node)
        elif kind == ENDED:
            self.ended = str(event.get("time"))
            for row in event["ended"]:
                self.ends(end_of(row, node))
        elif kind == RETRIED:
            self.retry(event["tasks"])
        elif kind == ADDED:
            self.files.append(str(event["file"]))
            self.digests.append(str(event.get("digest")))
        elif kind == MADE:
            self.made += event["tasks"]
        elif kind == WANTED:
            self.wanted += int(event["more"])
            self.table = event.get("table") or self.table
        elif kind == REACHED:
            for task, rung, value in event["rungs"]:
                self.reached.setdefault(task, []).append((rung, value))


def end_of(row: list[Any], node: str) -> TaskEnd:
    """Return how a try ended, from its row in the journal."""
    return TaskEnd(*row)._replace(node=node)


def replay(events: Iterable[Mapping[str, Any]]) -> TaskStates:
    """Return what became of each task."""
    states = TaskStates()
    for event in events:
        states.take(event)
    return states
