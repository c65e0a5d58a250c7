"""The course of a run in one allocation: nodes come, are judged and chosen, an attempt trains, another one or the end follows. Pure."""

from __future__ import annotations

from typing import Any, Callable, Mapping, Optional, Sequence, Union

from cordee.control.supervisor.decisions.attempt import Attempt
from cordee.control.supervisor.decisions.early_end import UNDECIDED, EarlyEnd
from cordee.control.supervisor.decisions.node_choice import ChosenNodes, NodePool
from cordee.control.supervisor.decisions.nodes import Node
from cordee.control.supervisor.decisions.outcomes import Ended, SegmentOver
from cordee.control.supervisor.decisions.restart import CheckpointDoubts, Failure, RestartCounter
from cordee.control.supervisor.decisions.trial import Trial, TrialResult, earlier
from cordee.control.supervisor.decisions.vocabulary import (
    AgentLost,
    AskToStop,
    BeginningFound,
    Broke,
    CancelWanted,
    Changed,
    Conclude,
    Concluded,
    ContainerGone,
    DataStaged,
    FateKnown,
    FoundGone,
    HangFound,
    Lead,
    LearnFate,
    NoSuccessor,
    NotCome,
    Ordered,
    Orphaned,
    Over,
    Passed,
    PortsFound,
    Preparing,
    RankNews,
    RunCommand,
    RunEvent,
    Terminated,
    TimeIsNear,
    TrainingEnded,
    TrainingSaid,
    VetAgain,
    journalled,
)
from cordee.core.errors import EXIT_ABORT, EXIT_INTERNAL
from cordee.runs.checkpoint import Doubt
from cordee.runs.plan import RunStep, RunTimeouts

_AT_ONCE = 0.0
_SECOND_S = 1.0
_SILENT_S = 0.2
_TELL_S = 0.05
_CONNECT_PER_NODE_S = 0.1
_TERMINATION_S = 2.0

_OF_TRIAL = (
    AgentLost,
    ContainerGone,
    DataStaged,
    PortsFound,
    BeginningFound,
    TrainingSaid,
    TrainingEnded,
    Ordered,
    FoundGone,
    HangFound,
)
Phase = Callable[[float], "list[RunCommand]"]


class RunLead:
    """Leads a run from `Lead` to `Over`.

    It is in one phase at a time: a method that is called with the time whenever something has happened, and returns what is
    to be done, or goes over to another phase.

    Args:
        step: the plan's step.
        timeouts: of the plan.
        nodes: by name; read, never changed.
        epoch: of this supervisor.
        attempts: how many there were before it.
        chains: whether the run can come back after its allocation.
        logs: where people find what agents said, for what is told when none connects.
        doubts: checkpoints that attempts before it were not to begin with.

    Attributes:
        early: why it ends before its ranks do.
        trial: the newest attempt, None before the first.
    """

    def __init__(
        self,
        step: RunStep,
        timeouts: RunTimeouts,
        nodes: Mapping[str, Node],
        epoch: int,
        attempts: int,
        chains: bool,
        logs: str,
        doubts: Sequence[Doubt] = (),
    ) -> None:
        self._step, self._timeouts, self._by_name = step, timeouts, nodes
        self._epoch, self._chains, self._logs = epoch, chains, logs
        self._pool = NodePool(nodes.values(), step.request.nodes, step.request.min_nodes)
        self.early = EarlyEnd(step, chains)
        self.trial: Optional[Trial] = None
        self._policy, self._doubts = RestartCounter(*step.restart), CheckpointDoubts(doubts)
        self._attempts, self._restarted, self._trials = attempts, attempts > 0, 0
        self._former: Optional[Attempt] = None
        self._over = self._busy = self._waited = self._fate_wanted = self._fate_known = self._orphaned = False
        self._phase: Phase = self._idle
        self._keep_on = (self._idle, self._judge, self._train, self._understand)  # though the run is to end early
        self._due: Optional[float] = None
        self._began = self._deadline = self._tried = 0.0
        self._concluded: Optional[Concluded] = None
        self._refused: Optional[Union[Ended, SegmentOver]] = None
        self._rules: dict[type, Callable[[Any], list[RunCommand]]] = {
            Lead: self._lead,
            Changed: lambda event: self._look_soon(),
            Preparing: self._preparing,
            Broke: self._broke,
            Concluded: self._conclude,
            CancelWanted: lambda event: self._ask(self.early.cancel(*event)),
            TimeIsNear: lambda event: self._ask(self.early.time_is_near(*event)),
            Terminated: self._terminated,
            Orphaned: self._have_orphaned,
            FateKnown: self._fated,
            Passed: self._passed,
            RankNews: self._of_trial,
            **dict.fromkeys(_OF_TRIAL, lambda event: self._look_soon(self._of_trial(event))),
        }

    def decide(self, event: RunEvent) -> list[RunCommand]:
        """Take an event and return what is to be done."""
        return [] if self._over else self._rules[type(event)](event)

    @property
    def due(self) -> Optional[float]:
        """When `Passed` is wanted, in monotonic seconds; None: only once something has happened."""
        if self._over:
            return None
        trial = self.trial.due if self.trial is not None else None
        return earlier(self._due, trial)

    @property
    def attempt(self) -> Optional[Attempt]:
        """The newest attempt that has begun."""
        return self.trial.attempt if self.trial is not None and self.trial.begun else self._former

    # What has happened

    def _look_soon(self, commands: Optional[list[RunCommand]] = None) -> list[RunCommand]:
        self._due = _AT_ONCE
        return commands or []

    def _again(self, at: float) -> list[RunCommand]:
        self._due = at if self._due is None else min(at, self._due)
        return []

    def _of_trial(self, event: Any) -> list[RunCommand]:
        return self.trial.decide(event) if self.trial is not None else []

    def _preparing(self, event: Preparing) -> list[RunCommand]:
        self._busy = event.busy
        return self._look_soon()

    def _broke(self, event: Broke) -> list[RunCommand]:
        self.early.over = Ended("failed", EXIT_INTERNAL, "internal", event.text)
        return self._look_soon(self._of_trial(NoSuccessor()))

    def _conclude(self, event: Concluded) -> list[RunCommand]:
        self._concluded = event
        return self._look_soon()

    def _ask(self, ask: Optional[AskToStop]) -> list[RunCommand]:
        """The run ends early: ranks that run are asked to stop."""
        if ask is None:
            return []
        trains = self.trial is not None and self.trial.begun and not self.trial.attempt.all_ended
        commands = self._of_trial(ask) if trains else []
        return self._look_soon(commands + self._of_trial(NoSuccessor()))

    def _terminated(self, event: Terminated) -> list[RunCommand]:
        wanted, self._fate_wanted = self._fate_wanted, True
        return [] if wanted else self._look_soon([LearnFate()])

    def _have_orphaned(self, event: Orphaned) -> list[RunCommand]:
        """The run goes on, whether or not the scheduler has noticed, until that says something else."""
        self._orphaned = True
        return [LearnFate(patiently=True)]

    def _fated(self, event: FateKnown) -> list[RunCommand]:
        self._fate_known = True
        if self._orphaned and event.fate in UNDECIDED:
            self._fate_wanted = self._fate_known = False
            return self._look_soon()
        return self._look_soon(self._ask(self.early.fated(*event)))

    def _passed(self, event: Passed) -> list[RunCommand]:
        self._due = None
        commands = self._of_trial(event)
        while True:
            phase, over = self._phase, self.early.over
            if over is not None and phase not in self._keep_on:
                return commands + self._finish(over)
            commands += phase(event.now)
            if self._phase == phase or self._over:
                return commands

    # Its phases

    def _idle(self, now: float) -> list[RunCommand]:
        return []

    def _finish(self, over: Union[Ended, SegmentOver]) -> list[RunCommand]:
        self._over = True
        return [Over(over)]

    def _lead(self, event: Lead) -> list[RunCommand]:
        """Nodes have a while to connect; where nothing is heard, ranks of an earlier supervisor may run until their lease is over."""
        patience_s = self._timeouts.connect_s + _CONNECT_PER_NODE_S * len(self._by_name)
        if self._restarted:
            patience_s = max(patience_s, self._timeouts.lost_s)
        self._began, self._deadline, self._phase = event.now, event.now + patience_s, self._gather
        return self._look_soon()

    def _gather(self, now: float) -> list[RunCommand]:
        """All nodes connect, or their time is up."""
        if not self._pool.all_connected and now < self._deadline:
            return self._again(self._deadline)
        self._phase = self._miss
        return [NotCome(now - self._began)]

    def _miss(self, now: float) -> list[RunCommand]:
        """It is said which nodes have no agent: of thousands not at once."""
        if self._pool.unsaid:
            return self._again(now + _TELL_S)
        self._phase, over = self._prepare, self._pool.too_few_came(self._logs)
        return [] if over is None else self._finish(over)

    @property
    def _some_prepare(self) -> bool:
        """Whether a node is being made ready for ranks."""
        return self._busy or self._pool.clearing

    def _prepare(self, now: float) -> list[RunCommand]:
        """The nodes are set up and vetted, each alone."""
        return [] if self._some_prepare else self._begin_judging(now)

    def _begin_judging(self, now: float) -> list[RunCommand]:
        self._deadline, self._phase = now + self._timeouts.connect_s, self._hear_of_replaced
        return []

    def _hear_of_replaced(self, now: float) -> list[RunCommand]:
        """The next agents come of nodes that were lost while they were prepared, if there are too few without them."""
        if self._pool.awaits_agents and (now < self._deadline or self._some_prepare):
            return self._again(now + _SECOND_S)
        self._phase = self._hear
        return []

    def _hear(self, now: float) -> list[RunCommand]:
        """Those are heard of that are to be judged."""
        if self._pool.may_return:
            return self._again(now + _SECOND_S)
        if self._pool.may_be_replaced and not self._waited:
            self._waited = True
            return self._wait(now)
        self._concluded, self._phase, self._waited = None, self._judge, False
        return [Conclude()]

    def _wait(self, now: float) -> list[RunCommand]:
        self._deadline, self._phase = now + self._timeouts.connect_s, self._wait_for_nodes
        return []

    def _judge(self, now: float) -> list[RunCommand]:
        """The nodes are judged against each other."""
        if self._concluded is None:
            return []
        if self._concluded.refusal is not None and self.early.over is None:
            return self._refuse(Ended("failed", EXIT_ABORT, "vetting", self._concluded.refusal), now)
        self._phase = self._choose
        return []

    def _choose(self, now: float) -> list[RunCommand]:
        """The nodes of the next attempt are chosen."""
        if self._pool.may_return or self._pool.may_keep(now, self._timeouts.lost_s):
            return self._again(now + _SECOND_S)
        if self._pool.may_be_replaced:
            return self._begin_judging(now)
        found = self._pool.choose(self.attempt.nodes if self.attempt is not None else [])
        if not isinstance(found, ChosenNodes):
            return self._refuse(found, now)
        names = [node.name for node in found.chosen]
        written = journalled("nodes_chosen", nodes=names, spares=found.spares, excluded=found.excluded)
        return [written, *self._try(found.chosen, now)]

    def _try(self, nodes: list[Node], now: float) -> list[RunCommand]:
        per_node, launch = self._step.request.ranks_per_node, self._step.tasks.launch
        silent_s = 2 * self._timeouts.heartbeat_s + _SILENT_S
        attempt = Attempt(self._attempts + 1, nodes, per_node, launch, self._epoch, silent_s)
        self._trials, self._tried = self._trials + 1, now
        self._former = self.attempt
        named = f"ports-{self._trials}"
        about_start = (self._step.stages, self._doubts.known)
        self.trial = Trial(attempt, self._by_name, named, self._timeouts, self.early, *about_start)
        self._phase = self._train
        return self.trial.begin(now)

    def _train(self, now: float) -> list[RunCommand]:
        """The ranks run."""
        trial = self.trial
        assert trial is not None
        if not trial.begun:
            over = self.early.over or trial.refused
            if over is not None:
                return self._finish(over)
            return [] if trial.lost is None else self._restart_or_end(trial.lost, None, now)
        self._attempts = trial.attempt.number
        if trial.result is None:
            return []
        outcome = trial.result.outcome
        if outcome.kind == "finished":
            return self._finish(Ended("finished", 0, "finished", "all ranks exited with code 0"))
        terminated = self._chains and outcome.failure is not None and outcome.failure.signal == "SIGTERM"
        self._deadline, self._phase = now + _TERMINATION_S, self._understand if terminated else self._go_on
        return []

    def _refuse(self, over: Union[Ended, SegmentOver], now: float) -> list[RunCommand]:
        """No attempt may begin; where checks broke off, it may be because the scheduler ends the job."""
        if not (self._chains and self._pool.broke_off):
            return self._finish(over)
        self._refused, self._deadline, self._phase = over, now + _TERMINATION_S, self._understand
        return []

    def _understand(self, now: float) -> list[RunCommand]:
        """A signal to the supervisor may come after the same signal to ranks and checks; then it is understood first."""
        if not self._fate_wanted and now < self._deadline:
            return self._again(self._deadline)
        if not self._fate_wanted or self._fate_known:
            self._phase = self._go_on
        return []

    def _go_on(self, now: float) -> list[RunCommand]:
        """An attempt has failed, or none may begin."""
        if self._refused is not None:
            return self._finish(self._refused)
        result = self.trial.result if self.trial is not None else None
        assert result is not None
        assert result.outcome.failure is not None
        return self._restart_or_end(result.outcome.failure, result, now)

    def _restart_or_end(self, failure: Failure, result: Optional[TrialResult], now: float) -> list[RunCommand]:
        decision = self._policy.decide(failure, result is not None and result.progressed, now - self._tried)
        count = decision.failures_without_progress
        commands: list[RunCommand] = []
        if decision.crash_loop:
            commands.append(journalled("crash_loop", rank=failure.rank, message=failure.message, count=count))
        if result is not None:
            got_on, attempt = result.progressed or result.stepped, f"attempt {self._attempts}"
            if self._doubts.decide(decision, failure, got_on, result.began_with, attempt):
                doubts = [doubt.document() for doubt in self._doubts.known]
                commands.append(journalled("checkpoints_doubted", doubts=doubts))
        if not decision.restart:
            return commands + self._finish(Ended("failed", failure.exit_code, decision.reason, decision.text))
        self._deadline, self._phase = now + decision.delay_s, self._pause
        pause = journalled(
            "restart_scheduled", attempt=self._attempts, delay_s=decision.delay_s, failures_without_progress=count
        )
        if not self._pool.to_vet_again:
            return [*commands, pause]
        self._busy = True  # as will be said once that has begun
        return [*commands, pause, VetAgain()]

    def _pause(self, now: float) -> list[RunCommand]:
        """A moment passes before the next attempt."""
        return self._again(self._deadline) if now < self._deadline else self._wait(now)

    def _wait_for_nodes(self, now: float) -> list[RunCommand]:
        """There are as many nodes as the run wants, or no more of them come."""
        if self._some_prepare or (self._pool.wants_more and now < self._deadline):
            return self._again(self._deadline) if now < self._deadline else []
        over = self._pool.too_few_returned(self._timeouts.connect_s)
        if over is not None:
            return self._finish(over)
        self._phase = self._hear
        return [] if self._waited else self._begin_judging(now)
