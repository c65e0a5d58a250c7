"""What the supervisor's decisions are made of: events say what has happened, commands say what is to be done about it.

A machine (`nodes`, `attempt`) takes one event after the other and answers each with commands. It has no clock, no file and
no connection: an event carries its time (`now`, monotonic seconds), and a connection is only a name to it. Commands are
carried out in their order, before the next event is taken. An order may name what must be durable in the journal before
it goes out (`after`, the `mark` of a `Write`); it is held until then, and those that come after it wait their turn.
"""

from __future__ import annotations

from typing import Any, Callable, NamedTuple, Optional, Union

from cordee.control.supervisor.decisions.outcomes import AttemptOutcome, Ended, SegmentOver
from cordee.control.supervisor.start_checkpoint import Beginning
from cordee.core.errors import WireError
from cordee.runs.checkpoint import Checkpoint, Doubt
from cordee.wire import messages
from cordee.wire.messages import FromAgent, FromSupervisor

# Orders: commands of whoever wants something of an agent, and events of the nodes, which know over what it is sent.


class Order(NamedTuple):
    """Something that an agent must get, however often its connection breaks.

    Attributes:
        mark: by which `Node.has_taken` knows this order, if anybody will ask.
        after: the mark of the journal's event that must be durable first.
    """

    node: str
    message: FromSupervisor
    body: bytes = b""
    mark: str = ""
    after: str = ""


class OrderEach(NamedTuple):
    """An order for each of many agents, which is made as it goes out: thousands hold the loop up otherwise.

    Attributes:
        nodes: in the order in which it goes to them.
        message: returns what the agent at a place in `nodes` must get.
    """

    nodes: list[str]
    message: Callable[[int], FromSupervisor]
    body: bytes = b""
    mark: str = ""
    after: str = ""

    def at(self, place: int) -> Order:
        """Return the order for one of the agents."""
        return Order(self.nodes[place], self.message(place), self.body, self.mark, self.after)


class Tell(NamedTuple):
    """Something for an agent that may be lost with the connection."""

    node: str
    message: FromSupervisor


# Of both: the nodes' machine decides it, and the attempt's is told


class AgentLost(NamedTuple):
    """All that an agent was asked for will not come any more."""

    node: str
    reason: str


class ContainerGone(NamedTuple):
    """The agent lives, and what its ranks ran in does not."""

    node: str
    reason: str


# Events of the nodes


class AgentCame(NamedTuple):
    """An agent has connected and said who it is.

    Attributes:
        address: where other nodes reach its node.
        attempt: the number of the attempt whose ranks may run there, None before the first.
    """

    now: float
    node: str
    connection: Any
    message: messages.Hello
    address: str
    attempt: Optional[int] = None


class AgentSaid(NamedTuple):
    """An agent said something else.

    Attributes:
        stamps: what the session put on the message: see `cordee.wire.session`.
        message: what it said, or why that is no message.
    """

    now: float
    node: str
    connection: Any
    stamps: dict[str, Any]
    message: Union[FromAgent, WireError]
    body: bytes = b""


class Closed(NamedTuple):
    """A connection to an agent has ended."""

    now: float
    node: str
    connection: Any


class LookedAt(NamedTuple):
    """A second is over; `training` are the nodes on which ranks of the attempt run, or are to."""

    now: float
    training: frozenset[str]


class LeasesDue(NamedTuple):
    """Leases are to be renewed: those of one of so many parts of the nodes."""

    now: float
    part: int = 0
    parts: int = 1


class HeldUp(NamedTuple):
    """This process stood still for so long, and could hear nobody."""

    seconds: float


class FoundGone(NamedTuple):
    """Agents, by node and incarnation, whose processes are known to have ended."""

    agents: list[tuple[str, int]]


class NotCome(NamedTuple):
    """The time for agents to connect is over."""

    waited_s: float


class GaveUp(NamedTuple):
    """A node cannot be used as it is: its agent is to be replaced."""

    node: str
    reason: str


class NodePrepared(NamedTuple):
    """A node's preparation has ended; it is the one of the agent with this incarnation."""

    node: str
    incarnation: int
    verdict: str
    results: list[dict[str, Any]]


class NodeJudged(NamedTuple):
    """A node was judged together with the others."""

    node: str
    verdict: str
    results: list[dict[str, Any]]


class NodeSuspected(NamedTuple):
    """Another node is to take the place of this one at the next restart, if there is one; an empty `reason`: no longer."""

    node: str
    reason: str


class VetAgain(NamedTuple):
    """No ranks run: suspected nodes that have not been looked at since are vetted again."""


class IsOver(NamedTuple):
    """The run, or its segment, is over: nodes that leave from now on are not missed."""


NodeEvent = Union[
    AgentCame,
    AgentSaid,
    Closed,
    LookedAt,
    LeasesDue,
    HeldUp,
    FoundGone,
    NotCome,
    GaveUp,
    NodePrepared,
    NodeJudged,
    NodeSuspected,
    VetAgain,
    IsOver,
    Order,
    Tell,
    "Passed",
]

# Events of an attempt


class BeginAttempt(NamedTuple):
    """The attempt begins: with which ports of its first node, and from which checkpoint."""

    ports: tuple[int, ...]
    beginning: Beginning


class StartRanks(NamedTuple):
    """The ranks are to be started.

    Attributes:
        ports: two free ports on the first node: for torch's store, and for JAX's coordinator.
        resume_from: path of the checkpoint that they begin from.
    """

    ports: tuple[int, ...]
    resume_from: Optional[str]


class Ordered(NamedTuple):
    """The orders to start the ranks have gone out."""


class RankNews(NamedTuple):
    """An agent said something of its ranks."""

    now: float
    node: str
    message: Union[messages.RanksStarted, messages.RanksEnded, messages.StopAnswers]


class AskToStop(NamedTuple):
    """The ranks are to stop, and may save before.

    Attributes:
        outcome: how the attempt ends then.
        most_s: that they have for it.
        signal: that has them save, without `SIG`; empty: none has.
    """

    now: float
    outcome: AttemptOutcome
    most_s: float
    signal: str


class StopRanks(NamedTuple):
    """All ranks that still run are to end.

    Attributes:
        grace_s: between SIGTERM and SIGKILL.
        most_s: that they have for it once their agent has been told.
        successor: whether another attempt may follow.
    """

    now: float
    grace_s: float
    most_s: float
    successor: bool


class NoSuccessor(NamedTuple):
    """No other attempt will follow."""


class Passed(NamedTuple):
    """The time at which a machine wanted to look again has come."""

    now: float


# Events of the run


class Changed(NamedTuple):
    """An agent has come or gone."""


class Lead(NamedTuple):
    """Lead the run from now on."""

    now: float


class Preparing(NamedTuple):
    """Whether any node is being set up and vetted."""

    busy: bool


class Broke(NamedTuple):
    """Something that only this program can get wrong."""

    text: str


class Concluded(NamedTuple):
    """The nodes have been judged against each other; `refusal` says why none may start, None: they may."""

    refusal: Optional[str]


class DataStaged(NamedTuple):
    """The nodes of the next attempt have what its ranks need there; else `refusal` says why they cannot, or `lost` which of them is gone."""

    now: float
    refusal: Optional[str] = None
    lost: Optional[str] = None


class PortsFound(NamedTuple):
    """A node has told which of its ports are free, or why none is."""

    message: messages.FreePorts


class BeginningFound(NamedTuple):
    """Where the next attempt begins, or why it cannot."""

    beginning: Union[Beginning, Ended]


class TrainingSaid(NamedTuple):
    """Other runs have been told that ranks are about to train."""


class TrainingEnded(NamedTuple):
    """The same of their end; `newest` is the newest checkpoint that is complete, `stepped` whether a rank has told a step."""

    newest: Optional[Checkpoint]
    stepped: bool = False


class CancelWanted(NamedTuple):
    """Somebody wants the run to end, `at_once` or after ranks could save."""

    now: float
    by: str
    at_once: bool = False


class TimeIsNear(NamedTuple):
    """The time limit is near; an empty text: the scheduler says so."""

    now: float
    text: str = ""


class HangFound(NamedTuple):
    """The ranks of an attempt do not go on, and the run is not to wait for them: they are asked to stop."""

    attempt: int
    ask: AskToStop


class Terminated(NamedTuple):
    """A signal told the supervisor to end."""

    now: float


class Orphaned(NamedTuple):
    """Whoever started the supervisor is gone; nobody has asked for anything."""


class FateKnown(NamedTuple):
    """What the scheduler has in mind with the allocation."""

    now: float
    fate: str


AttemptEvent = Union[
    BeginAttempt, StartRanks, Ordered, RankNews, AgentLost, ContainerGone, AskToStop, StopRanks, NoSuccessor, Passed
]

# Commands


class Send(NamedTuple):
    """Put a message on a connection."""

    connection: Any
    message: dict[str, Any]
    body: bytes = b""


class Close(NamedTuple):
    """End a connection with a goodbye."""

    connection: Any
    reason: str


class Abort(NamedTuple):
    """End a connection at once."""

    connection: Any
    reason: str


class Write(NamedTuple):
    """Write an event into the journal; orders that must wait for it name its `mark`."""

    event: str
    fields: dict[str, Any]
    durable: bool = True
    mark: str = ""


def journalled(event: str, *, durable: bool = True, mark: str = "", **fields: Any) -> Write:
    """Return the command to write an event with these fields: spelled out, for the catalogue of data reads them from the code."""
    return Write(event, fields, durable, mark)


class Complain(NamedTuple):
    """Say that something could not be done."""

    text: str
    error: Exception


class Take(NamedTuple):
    """Handle what an agent said, which comes once."""

    node: str
    message: FromAgent
    body: bytes


class Prepare(NamedTuple):
    """Make a node ready for ranks, `again` where only its checks are wanted; a preparation of it that is under way ends for `reason`."""

    node: str
    reason: str = "its agent was replaced"
    again: bool = False


class ReplaceAgent(NamedTuple):
    """Have another agent started in the place of this one."""

    node: str
    incarnation: int


class FindGone(NamedTuple):
    """Find out which of these agents, by node and incarnation, have ended."""

    agents: list[tuple[str, int]]


class AttemptOver(NamedTuple):
    """The attempt has ended, though some of its ranks may still run."""

    outcome: AttemptOutcome


class AttemptStopped(NamedTuple):
    """All ranks of the attempt have ended, but for those on these nodes, which would not."""

    overdue: list[str]


class FindFenced(NamedTuple):
    """Find out which of these agents, which are to be replaced, have ended."""

    agents: list[tuple[str, int]]


class Conclude(NamedTuple):
    """Have the nodes judged against each other; answered by `Concluded`."""


class StageData(NamedTuple):
    """Have these nodes made what ranks need there: data sets, services; answered by `DataStaged`."""

    nodes: list[str]


class FindBeginning(NamedTuple):
    """Find out where the next attempt begins; answered by `BeginningFound`."""

    doubts: tuple[Doubt, ...] = ()


class SayTraining(NamedTuple):
    """Tell other runs that ranks are about to train; answered by `TrainingSaid`."""


class EndTraining(NamedTuple):
    """Tell other runs that ranks do not train any more; answered by `TrainingEnded`."""


class NewAttempt(NamedTuple):
    """What ranks tell from now on is of another attempt."""


class CloseAttempt(NamedTuple):
    """Have all written that is known of an attempt."""

    number: int
    newest: Optional[Checkpoint]


class LearnFate(NamedTuple):
    """Find out what the scheduler has in mind; answered by `FateKnown`, `patiently` only once it has something in mind."""

    patiently: bool = False


class Over(NamedTuple):
    """The run, or its segment, is over."""

    over: Union[Ended, SegmentOver]


NodeCommand = Union[
    Send, Close, Abort, Write, Complain, Take, Prepare, AgentLost, Changed, ContainerGone, ReplaceAgent, FindGone
]
AttemptCommand = Union[Write, OrderEach, NodeSuspected, AttemptOver, AttemptStopped]
RunEvent = Union[
    AttemptEvent,
    Lead,
    Changed,
    Preparing,
    Broke,
    Concluded,
    DataStaged,
    PortsFound,
    BeginningFound,
    TrainingSaid,
    TrainingEnded,
    FoundGone,
    CancelWanted,
    TimeIsNear,
    Terminated,
    Orphaned,
    FateKnown,
    HangFound,
]
RunCommand = Union[
    AttemptCommand,
    Order,
    NotCome,
    GaveUp,
    VetAgain,
    FindFenced,
    Conclude,
    StageData,
    FindBeginning,
    SayTraining,
    EndTraining,
    NewAttempt,
    CloseAttempt,
    LearnFate,
    Over,
]
