"""One attempt and what surrounds it: its ports, where it begins, its ranks, and that nothing of it runs on beside the next. Pure."""

from __future__ import annotations

from typing import Any, Callable, Mapping, NamedTuple, Optional

from cordee.control.supervisor.decisions.attempt import Attempt
from cordee.control.supervisor.decisions.early_end import EarlyEnd
from cordee.control.supervisor.decisions.nodes import Node
from cordee.control.supervisor.decisions.outcomes import AttemptOutcome, Ended
from cordee.control.supervisor.decisions.restart import Failure
from cordee.control.supervisor.decisions.vocabulary import (
    AgentLost,
    AskToStop,
    AttemptEvent,
    AttemptOver,
    AttemptStopped,
    BeginAttempt,
    BeginningFound,
    CloseAttempt,
    ContainerGone,
    DataStaged,
    EndTraining,
    FindBeginning,
    FindFenced,
    FoundGone,
    GaveUp,
    HangFound,
    NewAttempt,
    NoSuccessor,
    Order,
    Ordered,
    Passed,
    PortsFound,
    RankNews,
    RunCommand,
    SayTraining,
    StageData,
    StartRanks,
    StopRanks,
    TrainingEnded,
    TrainingSaid,
    journalled,
)
from cordee.core.errors import EXIT_INTERNAL
from cordee.runs.checkpoint import Checkpoint, Doubt
from cordee.runs.plan import RunTimeouts
from cordee.wire import messages

_TICK_S = 0.2
_SECOND_S = 1.0
_GRACE_S = 5.0
_PORTS = 2


def earlier(one: Optional[float], other: Optional[float]) -> Optional[float]:
    """Return the earlier of two times, of which None is never."""
    if one is None or other is None:
        return other if one is None else one
    return one if one < other else other


class TrialResult(NamedTuple):
    """How an attempt ended.

    Attributes:
        progressed: whether it left a new complete checkpoint.
        stepped: whether a rank told a step.
        began_with: this run's own checkpoint with which it began.
    """

    outcome: AttemptOutcome
    progressed: bool
    stepped: bool = False
    began_with: Optional[Checkpoint] = None


class Trial:
    """One attempt, from `begin` to its `result`.

    Args:
        attempt: of ranks that are not ordered yet.
        nodes: of the run, by name.
        question: the identifier by which the answer about ports is known.
        timeouts: of the plan.
        early: says whether the run ends early.
        stages: whether data is brought to the nodes first.
        doubts: checkpoints with which it is not to begin.

    Attributes:
        begun: whether the attempt is in the journal.
        result: once it is over.
        refused: why the run cannot begin it.
        lost: its first node, before it could begin.
    """

    def __init__(
        self,
        attempt: Attempt,
        nodes: Mapping[str, Node],
        question: str,
        timeouts: RunTimeouts,
        early: EarlyEnd,
        stages: bool = False,
        doubts: tuple[Doubt, ...] = (),
    ) -> None:
        self.attempt = attempt
        self.begun = False
        self.result: Optional[TrialResult] = None
        self.refused: Optional[Ended] = None
        self.lost: Optional[Failure] = None
        self._nodes, self._question, self._timeouts, self._early = nodes, question, timeouts, early
        self._stages, self._doubts = stages, doubts
        self._ports: tuple[int, ...] = ()
        self._asked_at: Optional[float] = None
        self._session: object = None
        self._newest: Optional[Checkpoint] = None
        self._path: Optional[str] = None
        self._outcome: Optional[AttemptOutcome] = None
        self._fenced: Optional[dict[str, int]] = None
        self._due: Optional[float] = None
        self._rules: dict[type, Callable[[Any], list[RunCommand]]] = {
            DataStaged: self._staged,
            PortsFound: self._ports_told,
            BeginningFound: self._begin,
            TrainingSaid: self._start,
            FoundGone: self._found_gone,
            HangFound: self._hung,
            TrainingEnded: self._end,
            Passed: self._passed,
            **dict.fromkeys((Ordered, RankNews, AgentLost, ContainerGone, AskToStop, NoSuccessor), self._of_attempt),
        }

    @property
    def due(self) -> Optional[float]:
        """When `Passed` is wanted."""
        return earlier(self.attempt.due, self._due)

    def decide(self, event: Any) -> list[RunCommand]:
        """Take an event and return what is to be done."""
        return self._rules[type(event)](event)

    def begin(self, now: float) -> list[RunCommand]:
        """Have data brought to the nodes, if there is any for them, and then ports found."""
        return [StageData([node.name for node in self.attempt.nodes])] if self._stages else self._ask_for_ports(now)

    def _staged(self, event: DataStaged) -> list[RunCommand]:
        if event.refusal is not None:
            self.refused = Ended("failed", EXIT_INTERNAL, "staging", event.refusal)
        elif event.lost is not None:
            self.lost = Failure("node_lost", node=event.lost, message="it was lost while data was staged")
        else:
            return self._ask_for_ports(event.now)
        return []

    def _ask_for_ports(self, now: float) -> list[RunCommand]:
        """Have the first node tell two free ports."""
        node = self.attempt.nodes[0]
        self._asked_at, self._session, self._due = now, node.session, now + _SECOND_S
        return [Order(node.name, messages.Port(self._question, node.address, _PORTS))]

    def _ports_told(self, event: PortsFound) -> list[RunCommand]:
        told, node = event.message, self.attempt.nodes[0]
        if told.id != self._question or self._asked_at is None or self.lost is not None:
            return []
        self._asked_at = self._due = None
        if told.ports:
            self._ports = told.ports
            return [FindBeginning(self._doubts)]
        self.refused = Ended("failed", EXIT_INTERNAL, "no_port", f"no free port on {node.name}: {told.text}")
        return []

    def _look_at_ports(self, now: float) -> list[RunCommand]:
        node = self.attempt.nodes[0]
        if self._asked_at is None or self.lost is not None:
            return []
        if node.session is None or node.session is not self._session:
            self.lost = Failure("node_lost", node=node.name, message="its agent told no free port")
            self._due = None
            return []
        self._due = now + _SECOND_S
        if now - self._asked_at > self._timeouts.lost_s and node.connection is not None:
            return [GaveUp(node.name, "it gave no free port")]
        return []

    def _begin(self, event: BeginningFound) -> list[RunCommand]:
        if isinstance(event.beginning, Ended):
            self.refused = event.beginning
            return []
        if self._early.over is not None:
            return []
        self.begun = True
        self._newest, self._path = event.beginning.own, event.beginning.path
        return [NewAttempt(), *self.attempt.decide(BeginAttempt(self._ports, event.beginning)), SayTraining()]

    def _start(self, event: TrainingSaid) -> list[RunCommand]:
        return list(self.attempt.decide(StartRanks(self._ports, self._path)))

    def _of_attempt(self, event: AttemptEvent) -> list[RunCommand]:
        commands: list[RunCommand] = []
        for command in self.attempt.decide(event):
            if not isinstance(command, (AttemptOver, AttemptStopped)):
                commands.append(command)
        return commands

    def _hung(self, event: HangFound) -> list[RunCommand]:
        over = self._outcome is not None or self.attempt.all_ended
        return [] if over or event.attempt != self.attempt.number else self._of_attempt(event.ask)

    def _passed(self, event: Passed) -> list[RunCommand]:
        commands: list[RunCommand] = []
        for command in self.attempt.decide(event):
            if isinstance(command, AttemptOver):
                commands += self._over(command.outcome, event.now)
            elif isinstance(command, AttemptStopped):
                commands += self._fence(command.overdue)
            else:
                commands.append(command)
        return commands + self._look_at_ports(event.now) + self._look_at_fence(event.now)

    def _over(self, outcome: AttemptOutcome, now: float) -> list[RunCommand]:
        self._outcome = outcome
        if self.attempt.all_ended:
            return [EndTraining()]
        grace_s = 0.0 if outcome.kind in ("node_lost", "segment") else _GRACE_S
        most_s = grace_s + self._timeouts.kill_s + _SECOND_S
        return list(self.attempt.decide(StopRanks(now, grace_s, most_s, self._early.over is None)))

    def _fence(self, overdue: list[str]) -> list[RunCommand]:
        """Replace the agents whose ranks would not end, and wait: nothing of this attempt may write beside the next.

        It is safe to go on once the agent is gone or another one serves the node, either of which kills what it started,
        or once the lease of its ranks is over.
        """
        self._fenced = {name: self._nodes[name].incarnation for name in overdue}
        return [GaveUp(name, "its ranks did not end when killed") for name in overdue]

    def _look_at_fence(self, now: float) -> list[RunCommand]:
        if self._fenced is None or (self._due is not None and now < self._due and self._early.over is None):
            return []
        over_s = self._timeouts.lease_s + self._timeouts.kill_s
        left = [
            (name, number)
            for name, number in self._fenced.items()
            if self._nodes[name].incarnation == number and self._nodes[name].silent_s(now) < over_s
        ]
        if left and self._early.over is None:
            self._due = now + _TICK_S
            return [FindFenced(left)]
        self._fenced = self._due = None
        return [EndTraining()]

    def _found_gone(self, event: FoundGone) -> list[RunCommand]:
        for name, number in event.agents:
            if self._fenced is not None and self._fenced.get(name) == number:
                del self._fenced[name]
        return []

    def _end(self, event: TrainingEnded) -> list[RunCommand]:
        outcome, newest, number = self._outcome, event.newest, self.attempt.number
        assert outcome is not None
        progressed = newest is not None and newest.is_beyond(self._newest)
        self.result = TrialResult(outcome, progressed, event.stepped, self._newest)
        written = journalled(
            "attempt_ended",
            attempt=number,
            outcome=outcome.kind,
            reason=outcome.failure.sentence() if outcome.failure else outcome.reason,
            progress=progressed,
            failure=outcome.failure.document() if outcome.failure else None,
        )
        return [CloseAttempt(number, newest), written]
