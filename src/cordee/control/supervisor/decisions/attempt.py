"""One attempt: ranks started together on chosen nodes, watched until all have ended or one failure ends them all. Pure."""

from __future__ import annotations

from typing import Any, Callable, Optional

from cordee.control.lease import LEASE_OVER
from cordee.control.supervisor.decisions.agreement import StopAgreement
from cordee.control.supervisor.decisions.failure_evidence import FailureEvidence
from cordee.control.supervisor.decisions.nodes import Node
from cordee.control.supervisor.decisions.outcomes import AttemptOutcome
from cordee.control.supervisor.decisions.restart import Blame, Failure
from cordee.control.supervisor.decisions.roll import Roll
from cordee.control.supervisor.decisions.vocabulary import (
    AgentLost,
    AskToStop,
    AttemptCommand,
    AttemptEvent,
    AttemptOver,
    AttemptStopped,
    BeginAttempt,
    ContainerGone,
    NodeSuspected,
    NoSuccessor,
    OrderEach,
    Ordered,
    Passed,
    RankNews,
    StartRanks,
    StopRanks,
    journalled,
)
from cordee.control.world import encode_places
from cordee.wire import messages

_HELD = "a rank cannot be killed there: the kernel holds it"
_HEAR_S = 0.1
_AT_ONCE = 0.0


class Attempt:
    """The ranks of one attempt, from `BeginAttempt` and `StartRanks` to `AttemptOver`, and from `StopRanks` to `AttemptStopped`.

    Args:
        number: counts from 1 over the whole run.
        nodes: in rank order; read, never changed.
        ranks_per_node: the same on every node.
        launch: how they are started, `fork` or `srun`.
        epoch: of this supervisor.
        silent_s: a node that said nothing for so long may be lost.

    Attributes:
        due: when `Passed` is wanted, in monotonic seconds; None: only once something has happened.
    """

    def __init__(
        self, number: int, nodes: list[Node], ranks_per_node: int, launch: str, epoch: int, silent_s: float
    ) -> None:
        self.number = number
        self.nodes = nodes
        self.ranks_per_node = ranks_per_node
        self._launch, self._epoch, self._silent_s = launch, epoch, silent_s
        self._index = {node.name: index for index, node in enumerate(nodes)}
        self._roll, self._blame = Roll(len(nodes), ranks_per_node), Blame()
        self._evidence = FailureEvidence(f"probe-{number}")
        self._ordered = False
        self._interrupted: Optional[AttemptOutcome] = None
        self._asked: Optional[AttemptOutcome] = None
        self._agreement: Optional[StopAgreement] = None
        self._outcome: Optional[AttemptOutcome] = None
        self._stop: Optional[StopRanks] = None
        self._taken: dict[str, float] = {}
        self.due: Optional[float] = None
        self._rules: dict[type, Callable[[Any], list[AttemptCommand]]] = {
            BeginAttempt: self._begin,
            StartRanks: self._start,
            Ordered: self._are_ordered,
            RankNews: self._rank_news,
            AgentLost: self._agent_lost,
            ContainerGone: self._container_lost,
            AskToStop: self._ask_to_stop,
            StopRanks: self._begin_stop,
            NoSuccessor: self._no_successor,
            Passed: self._passed,
        }

    def decide(self, event: AttemptEvent) -> list[AttemptCommand]:
        """Take an event and return what is to be done."""
        return self._rules[type(event)](event)

    @property
    def group(self) -> str:
        """What agents call its ranks."""
        return f"ranks-{self.number}"

    @property
    def all_ended(self) -> bool:
        """Whether no rank runs any more, as far as is known."""
        return self._roll.left == 0

    @property
    def living(self) -> frozenset[str]:
        """The names of the nodes on which ranks of the attempt run, or are to, as far as is known."""
        return frozenset(node.name for node in self._living_nodes())

    # Its beginning

    def _begin(self, event: BeginAttempt) -> list[AttemptCommand]:
        placement = [{"node": node.name, "ranks": list(self._roll.of(index))} for index, node in enumerate(self.nodes)]
        begins = event.beginning
        return [
            journalled(
                "attempt_started",
                mark=self.group,
                attempt=self.number,
                world_size=len(self._roll),
                nodes=placement,
                master={"address": self.nodes[0].address, "port": event.ports[0]},
                checkpoint=begins.checkpoint.name if begins.checkpoint else None,
                resume_step=begins.checkpoint.step if begins.checkpoint else None,
                checkpoint_path=begins.path,
                other_run={"run": begins.run} if begins.other else None,
            )
        ]

    def _start(self, event: StartRanks) -> list[AttemptCommand]:
        """Order the ranks: once it is written for good that this attempt has begun."""
        number, launch, per_node, meet = self.number, self._launch, self.ranks_per_node, self.nodes[0].address
        port, coordinator, begin, epoch = event.ports[0], event.ports[1], event.resume_from, self._epoch
        names, ranks, group = [node.name for node in self.nodes], messages.Ranks, self.group

        def order(index: int) -> messages.Ranks:
            return ranks(number, launch, per_node, names[index], index, meet, port, coordinator, begin, epoch)

        return [OrderEach(names, order, encode_places(names, [node.address for node in self.nodes]), after=group)]

    def _are_ordered(self, event: Ordered) -> list[AttemptCommand]:
        self._ordered = True
        return self._look_soon()

    # What becomes of its ranks

    def _rank_news(self, event: RankNews) -> list[AttemptCommand]:
        news = event.message
        if news.attempt != self.number:
            return []
        if isinstance(news, messages.StopAnswers):
            if self._agreement is not None:
                self._agreement.answered(news.answers)
            return self._look_soon()
        if isinstance(news, messages.RanksStarted):
            return [command for one in news.started for command in self._rank_started(one, event.node)]
        return [command for one in news.ended for command in self._rank_ended(one, event.node)]

    def _rank_started(self, news: messages.StartedRank, node: str) -> list[AttemptCommand]:
        if not self._roll.starts(news.rank):
            return []
        return [journalled("rank_started", durable=False, attempt=self.number, rank=news.rank, node=node, pid=news.pid)]

    def _rank_ended(self, news: messages.EndedRank, node: str) -> list[AttemptCommand]:
        """Take an agent's word that a rank has ended; said twice it counts once."""
        if not self._roll.ends(news.rank):
            return []
        failed, held = news.code != 0, news.reason == "stuck"
        ours = held or news.reason in ("stopped", LEASE_OVER)
        if failed and not ours:
            self._blame.take(news, node)
        elif failed and self._stop is None:
            self._lose(node, news.message or (_HELD if held else "its agent ended its ranks"))
        if self._stop is None or self.all_ended:
            self._look_soon()
        return [
            journalled(
                "rank_exited",
                durable=False,  # how the attempt ended is durable, right after
                attempt=self.number,
                rank=news.rank,
                node=node,
                code=news.code,
                signal=news.signal,
                reason=news.reason,
                message=news.message if failed else None,
                seconds=news.seconds,
            ),
            *([NodeSuspected(node, _HELD)] if held else []),
        ]

    def _agent_lost(self, event: AgentLost) -> list[AttemptCommand]:
        """A node and all ranks on it are gone."""
        if event.node not in self._index:
            return []
        for rank in self._roll.of(self._index[event.node]):
            self._roll.ends(rank)
        self._lose(event.node, event.reason)
        return self._look_soon()

    def _container_lost(self, event: ContainerGone) -> list[AttemptCommand]:
        if event.node in self._index:
            self._lose(event.node, event.reason)
        return self._look_soon()

    def _lose(self, node: str, why: str) -> None:
        self._interrupt(AttemptOutcome("node_lost", Failure("node_lost", node=node, message=why)))

    def _interrupt(self, outcome: AttemptOutcome) -> None:
        """End the attempt for a reason that lies outside its ranks; the first reason stands."""
        self._interrupted = self._interrupted or outcome

    # Its end

    def _ask_to_stop(self, event: AskToStop) -> list[AttemptCommand]:
        """Give ranks that can save a chance to, then end the attempt."""
        commands: list[AttemptCommand] = [journalled("stop_requested", reason=event.outcome.reason)]
        self._asked = event.outcome
        self._look_soon()
        if event.most_s <= 0:
            self._interrupt(event.outcome)
            return commands
        self._agreement = StopAgreement(event.now, event.most_s, bool(event.signal))
        if event.signal:
            commands += self._to_all(messages.Signal(self.group, event.signal))
        return commands + self._to_all(messages.StopRequest(self.number))

    def _to_all(self, message: messages.FromSupervisor, mark: str = "") -> list[AttemptCommand]:
        return [OrderEach([node.name for node in self.nodes], lambda place: message, mark=mark)]

    def _begin_stop(self, event: StopRanks) -> list[AttemptCommand]:
        self._stop = event
        self._look_soon()
        return self._to_all(messages.Stop(self.group, event.grace_s), mark=self.group)

    def _no_successor(self, event: NoSuccessor) -> list[AttemptCommand]:
        if self._stop is not None:
            self._stop = self._stop._replace(successor=False)
        return self._look_soon()

    def _look_soon(self) -> list[AttemptCommand]:
        self.due = _AT_ONCE
        return []

    def _passed(self, event: Passed) -> list[AttemptCommand]:
        self.due = None
        commands = self._go_on_asking(event.now)
        if self._stop is not None:
            return commands + self._go_on_stopping(self._stop, event.now)
        if self._ordered and self._outcome is None:
            commands += self._how_it_ended(event.now)
        return commands

    def _again(self, at: float) -> None:
        self.due = at if self.due is None else min(at, self.due)

    def _go_on_asking(self, now: float) -> list[AttemptCommand]:
        agreement, told = self._agreement, self._asked
        if agreement is None or told is None or agreement.over:
            return []
        before = agreement.agreed
        agreement.look(now, self._roll.running, self.all_ended)
        if agreement.over:
            self._interrupt(told)
        else:
            self._again(agreement.due)
        if agreement.agreed is None or agreement.agreed == before:
            return []
        step = agreement.agreed
        return [journalled("stop_agreed", step=step), *self._to_all(messages.StopAt(self.number, step))]

    def _how_it_ended(self, now: float) -> list[AttemptCommand]:
        """Return that and how the attempt has ended, if it has."""
        if self._interrupted is not None:
            return self._over(self._interrupted)
        if self._blame.culprit is None:
            asked = self._asked if self._agreement is not None and self._agreement.asked else None
            return self._over(asked or AttemptOutcome("finished")) if self.all_ended else []
        settled = self._evidence.look(now, self._roll.left, self._blame.victims_only, self._living_nodes)
        if settled.again is None:
            return self._over(AttemptOutcome("failed", self._blame.culprit))
        self._again(settled.again)
        return list(settled.asked)

    def _over(self, outcome: AttemptOutcome) -> list[AttemptCommand]:
        self._outcome = outcome
        return [AttemptOver(outcome)]

    def _go_on_stopping(self, stop: StopRanks, now: float) -> list[AttemptCommand]:
        """Wait until all ranks that still run have ended, but for those that do not end in time.

        Where another attempt may follow, a node of which nothing is heard counts as living until it is heard of, or lost:
        its ranks may run on until their lease is over.
        """
        living = self._living_nodes()
        for node in living:
            if node.name not in self._taken and node.has_taken(self.group):
                self._taken[node.name] = now
        if not stop.successor:
            living = [node for node in living if node.connection is not None]
            overdue = living if now - stop.now > stop.most_s else []
        else:
            heard = [node for node in living if node.connection is not None and node.silent_s(now) < self._silent_s]
            overdue = [node for node in heard if now - self._taken.get(node.name, now) > stop.most_s]
        if len(overdue) < len(living):
            self._again(now + _HEAR_S)
            return []
        self._stop = None
        self._ordered = False
        return [AttemptStopped([node.name for node in overdue])]

    def _living_nodes(self) -> list[Node]:
        """Return the nodes on which ranks of the attempt run, as far as is known."""
        return [node for index, node in enumerate(self.nodes) if self._roll.has_left(index)]
