"""What the supervisor knows of its nodes, and what it decides about them: whom it lets in, who is silent, who is lost. Pure."""

from __future__ import annotations

from itertools import islice
from typing import Any, Callable, Iterable, Mapping, NamedTuple, Optional

from cordee.control.supervisor.decisions.vocabulary import (
    Abort,
    AgentCame,
    AgentLost,
    AgentSaid,
    Changed,
    Close,
    Closed,
    Complain,
    ContainerGone,
    FindGone,
    FoundGone,
    GaveUp,
    HeldUp,
    IsOver,
    LeasesDue,
    LookedAt,
    NodeCommand,
    NodeEvent,
    NodeJudged,
    NodePrepared,
    NodeSuspected,
    NotCome,
    Order,
    Passed,
    Prepare,
    ReplaceAgent,
    Send,
    Take,
    Tell,
    VetAgain,
    journalled,
)
from cordee.core.errors import WireError
from cordee.wire import messages
from cordee.wire.messages import encode
from cordee.wire.session import Session

_AWAY_S = 2.0
# Nodes that are lost before anything else has its turn: to lose thousands at one moment holds the loop up for seconds.
LOST_AT_ONCE = 250
_AT_ONCE = 0.0
_ABOUT = ("incarnation", "host", "pid", "start_ticks", "python")


class Node:
    """One node of the allocation; `Nodes` alone changes it.

    Attributes:
        connection: to the current agent, only a name here; None while there is none.
        session: with the current agent; None before the first and once the agent is given up.
        incarnation: of the current agent; a greater one means that everything on the node was lost.
        last_heard: when the agent last said something, in monotonic seconds.
        ready: whether this incarnation was set up and vetted.
        clearing_since: since when ranks are ended there that belong to no attempt of this supervisor; None: there are none.
        keeps: whether tasks that an earlier supervisor started run on there, or may do so, until an attempt takes them.
        verdict: healthy, suspect, bad or unknown.
        missed: it was said to be lost, and no agent has come since.
        suspected: why another node is to take its place where there is one; empty: it is not.
        unread_bytes: of what ranks logged and no telemetry has brought yet.
        queued_log_bytes: of what ranks printed and is not in the node's log yet.
        log: name and bytes of the file that the agent writes the ranks' output to.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.connection: Any = None
        self.session: Optional[Session] = None
        self.incarnation = 0
        self.host = ""
        self.address = "127.0.0.1"
        self.pid = 0
        self.last_heard = 0.0
        self.ready = False
        self.clearing_since: Optional[float] = None
        self.keeps = False
        self.verdict = "unknown"
        self.missed = False
        self.suspected = ""
        self._unlooked = False
        self.results: list[dict[str, Any]] = []
        self.dropped_log_bytes = 0
        self.unread_bytes = 0
        self.queued_log_bytes = 0
        self.log: Optional[tuple[str, int]] = None
        self._sessions = 0
        self._answering: Optional[float] = None
        self._away_s = 0.0
        self._questions = 0
        self._renewed = False
        self._marks: dict[str, int] = {}

    def order(self, order: Order) -> list[NodeCommand]:
        """Keep an order until the agent has it, however often the connection breaks; without an agent it is lost.

        An agent that leaves too much of what it was sent is cut off, and lost once it has been silent for too long.
        """
        if self.session is None:
            return []
        try:
            numbered = self.session.outbox.add(encode(order.message), order.body)
        except WireError as error:
            return self.give_up(error.text)
        if order.mark:
            self._marks[order.mark] = self.session.outbox.last
        if self.connection is None:
            return []
        return [Send(self.connection, self.session.stamped(numbered), order.body)]

    def tell(self, message: messages.FromSupervisor) -> list[NodeCommand]:
        """Say something that may be lost with the connection."""
        if self.connection is None or self.session is None:
            return []
        if isinstance(message, messages.Ack):
            message, self._renewed = message._replace(of=self._answering), True
        return [Send(self.connection, self.session.stamped(encode(message)))]

    def renew_lease(self) -> list[NodeCommand]:
        """Let the agent's ranks run on: answers what it said last."""
        return [] if self._answering is None else self.tell(messages.Lease(self._answering))

    def lease_is_due(self) -> list[NodeCommand]:
        """Renew the lease, unless an acknowledgement has done so since the last time."""
        renewed, self._renewed = self._renewed, False
        return [] if renewed else self.renew_lease()

    def goes_on(self, hello: messages.Hello) -> bool:
        """Return whether an agent that says hello is at the other end of the session: nothing was lost but a connection."""
        same = (hello.incarnation, hello.pid) == (self.incarnation, self.pid)
        if self.session is None or not same:
            return False
        known = hello.session == self.session.identifier and hello.seen <= self.session.outbox.last
        return known or self.session.untouched

    def meet(self, hello: messages.Hello, epoch: int) -> None:
        """Begin a session with an agent that is new here, with nothing of an earlier one."""
        self._sessions += 1
        self._marks.clear()
        self.session = Session(f"{epoch}.{self._sessions}")
        self.incarnation, self.pid = hello.incarnation, hello.pid
        self.host = hello.host
        self.ready, self.missed, self.clearing_since = False, False, None

    def welcome(self, event: AgentCame, epoch: int, segment: int) -> list[NodeCommand]:
        """Go on with the session over this connection: what the agent has not got yet is sent again."""
        assert self.session is not None
        hello, session = event.message, self.session
        if hello.session == session.identifier:
            session.take({"seen": hello.seen})
        self.heard(event.now, hello.at)
        self.connection, self.address = event.connection, event.address
        welcome = messages.Welcome(epoch, segment, session.identifier, hello.at)
        kept = [Send(self.connection, session.stamped(message), body) for message, body in session.outbox]
        return [*self.tell(welcome), *kept]

    def heard(self, now: float, at: Optional[float]) -> None:
        """The agent lives; keep when, on its own clock, it said so."""
        self._away_s, self.last_heard = self.away_s(now), now
        self._answering = self._answering if at is None else at

    def take_figures(self, told: messages.Telemetry) -> None:
        """Keep what telemetry says of itself; what it does not tell is as it was."""
        for name in ("dropped_log_bytes", "unread_bytes", "queued_log_bytes"):
            figure = getattr(told, name)
            if figure is not None:
                setattr(self, name, figure)

    def give_up(self, reason: str) -> list[NodeCommand]:
        """Forget the agent and all that it was told: its ranks end when their lease is over."""
        connection, self.connection = self.connection, None
        self.session, self.clearing_since, self.ready = None, None, False
        return [] if connection is None else [Abort(connection, reason)]

    def new_question(self) -> str:
        """Return an identifier by which the answer to a question is known."""
        self._questions += 1
        return f"{self._sessions}-{self._questions}"

    @property
    def last_said(self) -> float:
        """When the agent last said something, on its own clock."""
        return self._answering or 0.0

    def has_taken(self, mark: str) -> bool:
        """Return whether the agent has got the order with this mark."""
        return (
            self.session is not None and mark in self._marks and self._marks[mark] <= self.session.outbox.acknowledged
        )

    @property
    def takes_part(self) -> bool:
        """Whether it may hold ranks as far as vetting knows: that its machine was busy then is held against no node."""
        if self.verdict != "unknown":
            return self.verdict in ("healthy", "suspect")
        off = [result for result in self.results if result["status"] not in ("pass", "skip")]
        return bool(off) and all(result["status"] == "unknown" and result.get("cause") == "busy" for result in off)

    @property
    def to_vet_again(self) -> bool:
        """Whether it was suspected and has not been vetted since, and can be."""
        return self._unlooked and self.ready and self.session is not None

    def suspect(self, reason: str) -> None:
        """Others are to take its place, or no longer."""
        self.suspected, self._unlooked = reason, bool(reason)

    def is_vetted_again(self) -> None:
        """It may hold no ranks until that is done."""
        self.ready = self._unlooked = False

    def away_s(self, now: float) -> float:
        """Return for how many seconds, all in all, nothing was heard of the agent though it says something all the time."""
        silent = self.silent_s(now)
        return self._away_s + (silent if self.connection is None or silent > _AWAY_S else 0.0)

    def silent_s(self, now: float) -> float:
        """Return for how many seconds the agent has said nothing."""
        return now - self.last_heard


class _Lost(NamedTuple):
    """A node that is to be lost: the session with its agent, and when that was heard last, as it was when this was found."""

    session: Optional[Session]
    heard: Optional[float]
    reason: str


class Nodes:
    """Decides about the nodes of one run, for one supervisor.

    Args:
        names: of the nodes.
        epoch, segment: of this supervisor.
        lost_s: how long a node may be silent.

    Attributes:
        by_name: the nodes; to be read by anybody.
        due: at once while nodes are still to be lost, else None: it is told of every second.
    """

    def __init__(self, names: Iterable[str], epoch: int, segment: int, lost_s: float) -> None:
        self.by_name = {name: Node(name) for name in names}
        self._all = list(self.by_name.values())
        self._epoch, self._segment, self._lost_s = epoch, segment, lost_s
        self._ending = False
        self.due: Optional[float] = None
        self._to_lose: dict[str, _Lost] = {}
        self._rules: dict[type, Callable[[Any], list[NodeCommand]]] = {
            AgentCame: self._hello,
            AgentSaid: self._said,
            Closed: self._closed,
            LookedAt: self._looked_at,
            LeasesDue: self._renew_leases,
            HeldUp: self._held_up,
            FoundGone: self._found_gone,
            NotCome: self._not_come,
            GaveUp: lambda event: self._lose(self.by_name[event.node], event.reason),
            NodePrepared: self._prepared,
            NodeJudged: self._judged,
            NodeSuspected: self._suspected,
            VetAgain: self._vet_again,
            IsOver: self._end,
            Passed: lambda event: self._lose_some(event.now),
            Order: lambda order: self.by_name[order.node].order(order),
            Tell: lambda told: self.by_name[told.node].tell(told.message),
        }

    def decide(self, event: NodeEvent) -> list[NodeCommand]:
        """Take an event and return what is to be done.

        Raises:
            WireError: an agent and this supervisor do not agree on what was sent: their connection cannot go on.
        """
        return self._rules[type(event)](event)

    def _renew_leases(self, event: LeasesDue) -> list[NodeCommand]:
        return [command for node in self._all[event.part :: event.parts] for command in node.lease_is_due()]

    def _hello(self, event: AgentCame) -> list[NodeCommand]:
        node, hello = self.by_name[event.node], event.message
        if hello.incarnation < node.incarnation or hello.epoch > self._epoch:
            older = "agent serves this node" if hello.epoch <= self._epoch else "supervisor leads this run"
            return [Close(event.connection, f"a newer {older}")]
        if node.connection is not None and hello.incarnation == node.incarnation and hello.pid != node.pid:
            return [Send(event.connection, encode(messages.Bye(another=True)))]
        commands: list[NodeCommand] = []
        goes_on, living = node.goes_on(hello), bool(hello.living)
        if not goes_on:
            if node.incarnation:
                commands += self._gone(node, "its agent was replaced")
            node.meet(hello, self._epoch)
        elif node.connection is not None and node.connection is not event.connection:
            commands.append(Abort(node.connection, "replaced by a newer connection"))
        commands += node.welcome(event, self._epoch, self._segment)
        if not goes_on:
            about = {key: getattr(hello, key) for key in _ABOUT}
            about["cores"] = sum(node.cores for node in hello.slots.cores)
            about["gpus"] = [gpu.uuid for gpu in hello.slots.gpus]
            commands.append(journalled("node_connected", durable=False, node=node.name, **about))
        # What it keeps is no attempt's before it has got the order that takes it, which may still be on its way.
        if not goes_on or (living and hello.attempt != event.attempt and node.ready and not node.keeps):
            commands += self._clear_or_prepare(node, living, event.now)
        return commands

    @staticmethod
    def _clear_or_prepare(node: Node, living: bool, now: float) -> list[NodeCommand]:
        """Prepare a node for ranks; where some run that belong to no attempt of ours, these must have ended first."""
        node.ready = False
        if not living:
            return [Prepare(node.name)]
        node.clearing_since = now
        return node.order(Order(node.name, messages.Clear()))

    def _said(self, event: AgentSaid) -> list[NodeCommand]:
        node = self.by_name[event.node]
        if node.connection is not event.connection:
            return []
        node.heard(event.now, event.stamps.get("at"))
        if node.session is None:
            return []
        new = node.session.take(event.stamps, len(event.body))
        commands = node.renew_lease() if node.session.owes else []
        return commands + self._new(node, event) if new else commands

    def _new(self, node: Node, event: AgentSaid) -> list[NodeCommand]:
        message = event.message
        if isinstance(message, WireError):  # it will not come again, and somebody may wait for what it said
            complaint = Complain(f"what the agent of {node.name} said could not be handled", message)
            return [complaint, *self._lose(node, f"what its agent said could not be handled: {message}")]
        if isinstance(message, messages.Alive):
            return []
        if isinstance(message, messages.Cleared):
            node.clearing_since, node.ready, node.keeps = None, message.kept, message.kept
            if not message.kept:
                return [Prepare(node.name)]
            # It serves the attempt already: set-up lines and checks beside its tasks would disturb them, and be disturbed.
            node.verdict, node.results = "healthy", []
            return [Changed()]
        if isinstance(message, messages.RanksStarted):
            node.keeps = False
        if isinstance(message, messages.ContainerLost):
            return [] if self._ending else self._container_lost(node, message.text)
        if isinstance(message, messages.Telemetry):
            node.take_figures(message)
        return [Take(node.name, message, event.body)]

    @staticmethod
    def _container_lost(node: Node, reason: str) -> list[NodeCommand]:
        node.ready = False
        written = journalled("container_lost", node=node.name, reason=reason)
        return [written, ContainerGone(node.name, reason), Prepare(node.name, reason)]

    def _closed(self, event: Closed) -> list[NodeCommand]:
        node = self.by_name[event.node]
        if node.connection is event.connection:
            node.connection, node.last_heard = None, event.now
        return []

    def _looked_at(self, event: LookedAt) -> list[NodeCommand]:
        if self._ending:
            return []
        commands: list[NodeCommand] = []
        departed = [
            (node.name, node.incarnation) for node in self.by_name.values() if node.ready and node.connection is None
        ]
        if departed:
            commands.append(FindGone(departed))
        for node in self.by_name.values():
            if node.clearing_since is not None and event.now - node.clearing_since > self._lost_s:
                self._is_lost(node, "ranks of an earlier attempt do not end there", None)
                continue
            silent_s = node.silent_s(event.now)
            if silent_s > self._lost_s and (node.session is not None or node.name in event.training):
                how = "its agent is silent" if node.connection is not None else "its agent is gone"
                self._is_lost(node, f"{how} for {silent_s:.0f} s", node.last_heard)
        return commands + self._lose_some(event.now)

    def _held_up(self, event: HeldUp) -> list[NodeCommand]:
        """Do not blame the nodes for time in which this process was held up."""
        for node in self.by_name.values():
            node.last_heard += event.seconds
        return []

    def _found_gone(self, event: FoundGone) -> list[NodeCommand]:
        for name, incarnation in event.agents:
            node = self.by_name[name]
            if node.ready and node.connection is None and node.incarnation == incarnation and not self._ending:
                self._is_lost(node, "its agent ended", node.last_heard)
        return self._lose_some(_AT_ONCE)

    def _not_come(self, event: NotCome) -> list[NodeCommand]:
        reason = f"no agent connected within {event.waited_s:.0f} s"
        for node in self._all:
            if node.session is None:
                self._is_lost(node, reason, None)
        return self._lose_some(_AT_ONCE)

    def _prepared(self, event: NodePrepared) -> list[NodeCommand]:
        node = self.by_name[event.node]
        if node.incarnation == event.incarnation:
            node.results, node.verdict, node.ready = event.results, event.verdict, True
        return []

    def _judged(self, event: NodeJudged) -> list[NodeCommand]:
        node = self.by_name[event.node]
        node.results, node.verdict = event.results, event.verdict
        return [
            journalled(
                "node_verdict",
                durable=False,  # the verdict on all of them is durable, right after
                node=node.name,
                verdict=event.verdict,
                results=event.results,
            )
        ]

    def _is_lost(self, node: Node, reason: str, heard: Optional[float]) -> None:
        """Have a node lost in its turn, unless it is heard of before that, where `heard` is when it was last."""
        self._to_lose.setdefault(node.name, _Lost(node.session, heard, reason))

    def _lose_some(self, now: float) -> list[NodeCommand]:
        """Lose the nodes whose turn it is: a part at a time, in their order."""
        commands: list[NodeCommand] = []
        for name in list(islice(self._to_lose, LOST_AT_ONCE)):
            node, lost = self.by_name[name], self._to_lose.pop(name)
            if node.session is lost.session and lost.heard in (None, node.last_heard) and not self._ending:
                commands += self._lose(node, lost.reason)
        self.due = now if self._to_lose else None
        return commands

    def suspected_before(self, reasons: Mapping[str, str]) -> None:
        """Take what an earlier supervisor of the run was told."""
        for name, reason in reasons.items():
            if name in self.by_name:
                self.by_name[name].suspected = reason

    def _suspected(self, event: NodeSuspected) -> list[NodeCommand]:
        node = self.by_name[event.node]
        if node.suspected == event.reason:
            return []
        node.suspect(event.reason)
        return [journalled("node_suspected", node=node.name, reason=event.reason)]

    def _vet_again(self, event: VetAgain) -> list[NodeCommand]:
        commands: list[NodeCommand] = []
        for node in self._all:
            if node.to_vet_again:
                node.is_vetted_again()
                commands.append(Prepare(node.name, "it is vetted again", again=True))
        return commands

    def _end(self, event: IsOver) -> list[NodeCommand]:
        self._ending = True
        return []

    def _lose(self, node: Node, reason: str) -> list[NodeCommand]:
        node.missed = True
        written = journalled("node_lost", node=node.name, reason=reason)
        return [written, *self._gone(node, reason), ReplaceAgent(node.name, node.incarnation)]

    @staticmethod
    def _gone(node: Node, reason: str) -> list[NodeCommand]:
        return [*node.give_up(reason), AgentLost(node.name, reason)]


def usable(nodes: Iterable[Node]) -> list[Node]:
    """Return the nodes that may hold ranks: the healthy before the suspect and those that were busy, those in whose place others should be last, otherwise in their order."""
    ready = [node for node in nodes if node.connection is not None and node.ready and node.takes_part]
    order = ("healthy", "suspect", "unknown")
    return sorted(ready, key=lambda node: (bool(node.suspected), order.index(node.verdict)))
