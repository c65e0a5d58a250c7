"""Every message between a supervisor, its agents and its clients: its fields with their types, and the one codec for them.

On the wire a message is a JSON object: its kind under `t`, its fields by name, and beside them what the session stamps on
it (`n`, `seen`: see `cordee.wire.session`; `at`: when an agent said it, on its own clock). What is too long, of another
type or of an unknown kind is refused; fields that are not known here are passed over, as the other end may be newer. A
field that has a default is not sent where it has that.
"""

from __future__ import annotations

from typing import Any, Generic, Mapping, NamedTuple, Optional, TypeVar, Union

from cordee.core.errors import WireError
from cordee.wire.codec import (
    FORMS,
    INTEGER,
    NUMBER,
    OBJECT,
    TEXT,
    TRUTH,
    each,
    fields_of,
    leave_out,
    or_none,
    read_fields,
    record,
    row,
    shown,
)

# What messages hold


class RankStep(NamedTuple):
    """The last step that a rank has logged."""

    rank: int
    step: int


class StartedRank(NamedTuple):
    """A rank that runs, and its main process."""

    rank: int
    pid: int


class EndedRank(NamedTuple):
    """A rank that has ended: exit code or signal, the reason as tasks have it, for how long it ran, and its last words."""

    rank: int
    code: Optional[int]
    signal: Optional[str]
    reason: str
    seconds: float
    message: Optional[str]


class StopAnswer(NamedTuple):
    """At which step a rank waits to be told where to stop; None while it has not come to ask."""

    rank: int
    step: Optional[int]


class CappedValues(NamedTuple):
    """How many logged values of a rank were left out, because it uses too many names."""

    rank: int
    values: int


class CoreSlots(NamedTuple):
    """Physical cores of one NUMA node (null: the kernel knows of none): how many, and their CPUs, as `0-3,8`."""

    numa: Optional[int]
    cores: int
    cpus: str


class InstanceSlot(NamedTuple):
    """A part of a GPU (MIG); bytes of its memory where the driver has told."""

    uuid: str
    memory_bytes: Optional[int]


class GpuSlot(NamedTuple):
    """A GPU by its UUID (its PCI address where there is none), with the CPUs near it, and what its driver has told until now."""

    uuid: str
    near: str
    memory_bytes: Optional[int]
    instances: tuple[InstanceSlot, ...]


class Slots(NamedTuple):
    """What an agent may use of its node."""

    cores: tuple[CoreSlots, ...] = ()
    gpus: tuple[GpuSlot, ...] = ()
    memory_bytes: int = 0


class RankStand(NamedTuple):
    """A rank that has not gone on for some seconds.

    Attributes:
        rank: the global rank.
        stands_s: seconds since its last step or collective; as `idle_s` where there was none.
        idle_s: seconds since it last did anything else: ran other lines of Python, read or wrote, had children at work.
        usual_s: the median time between two steps before, in seconds; None where fewer than three were seen.
        began: whether it has made a step or called a collective in this attempt.
        why: `stopped` by a signal, `silent` where its interpreter runs no other thread, else empty.
    """

    rank: int
    stands_s: float
    idle_s: float
    usual_s: Optional[float]
    began: bool
    why: str


class KindTimes(NamedTuple):
    """How long a rank was at one kind of work in a window.

    Attributes:
        seconds: in all.
        looks: how often it was seen at it.
        longest_s: its longest stay at it without a break, which may have begun before the window.
        squares: the sum of the squares of its stays, in seconds squared: many short ones make less than one long one.
    """

    seconds: float
    looks: int
    longest_s: float
    squares: float


class RankDigest(NamedTuple):
    """What one rank did in a window of some seconds; what of it is in none of the four kinds, nor unseen, is not known.

    Attributes:
        rank: the global rank.
        window_s: the time that was looked at; kinds and unseen time are parts of it.
        steps: of all optimizers.
        compute, data, communication, saving: its time by kinds; what it waited for a processor is in the kind that it was at.
        delayed_s: for how long its main thread could have run and had no processor; parts of the kinds too.
        unseen_s: for how long the whole process did not run, stopped by a signal for example.
        faults: page faults for which something was read from a disk.
        throttled_s: for how long its control group had used up its share of processors; 0 where nothing says so.
    """

    rank: int
    window_s: float
    steps: int
    compute: KindTimes
    data: KindTimes
    communication: KindTimes
    saving: KindTimes
    delayed_s: float
    unseen_s: float
    faults: int
    throttled_s: float


class SlowLink(NamedTuple):
    """A peer for which data waits on a node, in a window.

    Attributes:
        address: of the peer.
        queued_bytes: what ranks have written to it and it has not acknowledged, the most that was seen at once.
        retransmits: segments that were sent again.
    """

    address: str
    queued_bytes: int
    retransmits: int


class RankPlace(NamedTuple):
    """Where a rank says that it stands in the training's parallelism: its index by dimension."""

    attempt: int
    rank: int
    place: dict[str, Any]


class NodeFinding(NamedTuple):
    """What a system's part on a node has found, told along until the agent ends.

    Attributes:
        cause: tells it from all else that this node finds.
        level: it is written again once this is higher than it was: it has got worse.
        shared: other nodes that tell the same cause mean the same thing, such as a file system.
        finding: a `Finding`, as a document.
    """

    cause: str
    level: int
    shared: bool
    finding: dict[str, Any]


class RankFinding(NamedTuple):
    """What a rank has found, in words; `next`: what to do about it."""

    rule: str
    text: str
    next: str


class LogFile(NamedTuple):
    """The file that holds what a node's ranks print, and the bytes of it that are written."""

    name: str
    bytes: int


class DataSave(NamedTuple):
    """A position in a data set that was saved: samples given until then, or the step of the checkpoint that holds it."""

    position: int
    given: Optional[int] = None
    step: Optional[int] = None


class DataRead(NamedTuple):
    """How far a rank is in a data set; a turn ends where its script loads another position."""

    attempt: int
    rank: int
    set: str
    turn: int
    size: Optional[int] = None
    begin: Optional[int] = None
    position: Optional[int] = None
    given: Optional[int] = None
    dropped: Optional[int] = None
    saves: tuple[DataSave, ...] = ()


# What a supervisor says to an agent


class Welcome(NamedTuple):
    """The answer to `Hello`: who leads the run, which session it is, and the moment `of` what it answers."""

    epoch: int
    segment: int
    session: str
    of: float


class Lease(NamedTuple):
    """What the agent said at the moment `of`, on its own clock, was heard: its ranks may run on."""

    of: float


class Clear(NamedTuple):
    """End what earlier attempts left; answered by `Cleared`."""


class Bye(NamedTuple):
    """The agent is to end; `another` one serves its node, now or in the next segment, and uses what it would remove."""

    another: bool = False


class Ack(NamedTuple):
    """Telemetry up to this number is stored; renews the lease as `Lease` does."""

    sequence: int
    of: Optional[float] = None


class Container(NamedTuple):
    """Open the container that the plan names; answered by `ContainerDone`."""

    id: str
    deadline_s: float


class Setup(NamedTuple):
    """Run the plan's set-up lines; answered by `SetupDone`."""

    id: str
    deadline_s: float


class Checks(NamedTuple):
    """Run checks, as `cordee.checks` takes them; answered by `ChecksOutput` and `ChecksDone`."""

    id: str
    request: dict[str, Any]
    deadline_s: float


class Port(NamedTuple):
    """Find free ports of the address `host`; answered by `FreePorts`."""

    id: str
    host: str
    count: int  # type: ignore[assignment]  # every tuple has a function of that name, which nobody needs here


class Clock(NamedTuple):
    """Tell what time it is; answered by `Time`."""

    id: str


class StageOrder(NamedTuple):
    """Something that a system wants done on this node before ranks start; answered by `Staging` of the same system."""

    system: str
    request: dict[str, Any]


class Ranks(NamedTuple):
    """Start the ranks of an attempt; which nodes it has is in the body: see `cordee.control.world`."""

    attempt: int
    launch: str
    ranks_per_node: int
    node: str
    node_rank: int
    master_address: str
    master_port: int
    coordinator_port: int
    resume_from: Optional[str]
    epoch: int


class Stop(NamedTuple):
    """End the ranks of this group: SIGTERM, and SIGKILL after `grace_s`."""

    group: str
    grace_s: float


class Signal(NamedTuple):
    """Send the ranks of this group a signal, named without `SIG`."""

    group: str
    signal: str


class StopRequest(NamedTuple):
    """Ask the ranks at which step they can stop; answered by `StopAnswers`."""

    attempt: int


class StopAt(NamedTuple):
    """Tell the ranks at which step they stop."""

    attempt: int
    step: int


class Gather(NamedTuple):
    """Collect, within `deadline_s` on an idle node, what shows where the ranks of an attempt stand; answered by `Gathered`.

    Where `late` is True, dumps that come later are told after the last word, for a minute.
    """

    id: str
    attempt: int
    deadline_s: float
    late: bool = False


class Observe(NamedTuple):
    """Have the ranks of an attempt looked at, or no longer, for what they do with their time; told in `Telemetry`."""

    attempt: int
    wanted: bool


class ProfileRanks(NamedTuple):
    """Have those of the `wanted` ranks that this node has profiled by a tool, within `deadline_s`; answered by `Gathered`.

    Attributes:
        begin_at: UTC seconds after which the first step is traced.
        steps, seconds: how long, by one of both; the other is 0.
        extras: what else is recorded, as `cordee.wire.pulse.EXTRAS` has it.
    """

    id: str
    attempt: int
    deadline_s: float
    wanted: tuple[int, ...]
    tool: str
    begin_at: float
    steps: int
    seconds: float
    extras: int


class PoolTasks(NamedTuple):
    """Tasks for the pool of an attempt on a node are in the body, as its system writes them; `last`: no others come, it ends when it is empty."""

    attempt: int
    last: bool = False


class Shell(NamedTuple):
    """Open a shell, or run a command, on a terminal; answered by `ShellOutput` and `ShellExit`."""

    id: str
    argv: tuple[str, ...]
    term: Optional[str]
    rows: int
    columns: int


class ShellInput(NamedTuple):
    """What was typed is in the body; `closed` when its client has gone. Only the supervisor gives the `id`."""

    id: str = ""
    closed: bool = False


class ShellResize(NamedTuple):
    """A shell's terminal has another size now. Only the supervisor gives the `id`."""

    rows: int
    columns: int
    id: str = ""


# What an agent says to a supervisor


class Hello(NamedTuple):
    """The first message on a connection: which process this is, what it has of a session, and what runs there."""

    incarnation: int
    pid: int
    start_ticks: int
    host: str
    python: str
    slots: Slots
    epoch: int
    attempt: int
    living: tuple[int, ...]
    session: str = ""
    seen: int = 0
    at: float = 0.0


class Alive(NamedTuple):
    """Nothing but a sign of life."""


class Cleared(NamedTuple):
    """Nothing that earlier attempts left runs any more, but for tasks that are `kept` for the next attempt there."""

    kept: bool = False


class ContainerDone(NamedTuple):
    """Whether the container is open: `pass`, `fail` or `unknown`, and why not."""

    id: str
    status: str
    text: str
    seconds: float


class ContainerLost(NamedTuple):
    """The container has ended by itself."""

    text: str


class SetupDone(NamedTuple):
    """How the set-up lines ended: `pass` or `fail`, and why."""

    id: str
    status: str
    text: str
    seconds: float


class ChecksOutput(NamedTuple):
    """What checks print is in the body: a part of JSON lines, one result each."""

    id: str


class ChecksDone(NamedTuple):
    """How the checks' process ended."""

    id: str
    code: Optional[int]
    signal: Optional[str]
    reason: str
    text: str


class FreePorts(NamedTuple):
    """Ports that were free a moment ago; none, and why, where there are not enough."""

    id: str
    ports: tuple[int, ...]
    text: str


class Time(NamedTuple):
    """What time it is on the node."""

    id: str
    unix_s: float


class Staging(NamedTuple):
    """What a system says of what it was asked for before ranks start."""

    system: str
    said: dict[str, Any]


class RanksStarted(NamedTuple):
    """Ranks run: all that began together."""

    attempt: int
    started: tuple[StartedRank, ...]


class RanksEnded(NamedTuple):
    """Ranks have ended: all that ended together."""

    attempt: int
    ended: tuple[EndedRank, ...]


class StopAnswers(NamedTuple):
    """What the ranks of this node have answered to `StopRequest` so far."""

    attempt: int
    answers: tuple[StopAnswer, ...]


class Telemetry(NamedTuple):
    """What was measured and logged is in the body; `sequence` where that is kept until `Ack`. What is None is not told.

    `digests` and `links` hold the windows that have ended since they were told last, the older ones first; no digests: nobody
    looks at what ranks do with their time.
    """

    sequence: Optional[int]
    steps: tuple[RankStep, ...]
    total: Optional[int] = None
    now: Optional[float] = None
    capped_values: tuple[CappedValues, ...] = ()
    data: tuple[DataRead, ...] = ()
    found: tuple[RankFinding, ...] = ()
    unread_bytes: Optional[int] = None
    dropped_log_bytes: Optional[int] = None
    queued_log_bytes: Optional[int] = None
    log: Optional[LogFile] = None
    lost_samples: int = 0
    troubles: tuple[str, ...] = ()
    stands: Optional[tuple[RankStand, ...]] = None
    findings: tuple[NodeFinding, ...] = ()
    digests: Optional[tuple[RankDigest, ...]] = None
    links: tuple[SlowLink, ...] = ()
    places: tuple[RankPlace, ...] = ()


class Gathered(NamedTuple):
    """A part of a collected file is in the body, `last` if it is the file's last one; no `name`: all has been told, but for `text`.

    With `times` it begins, maybe again: the node is so busy that it takes so many times as long.
    """

    id: str
    name: str = ""
    last: bool = False
    text: str = ""
    times: float = 0.0


class PoolNews(NamedTuple):
    """What became of tasks of an attempt's pool on a node is in the body, as its system writes it."""

    attempt: int


class ShellOutput(NamedTuple):
    """What a shell prints is in the body."""

    id: str


class ShellExit(NamedTuple):
    """A shell has ended, or was refused."""

    id: str
    code: int
    text: str


# What a client says to a supervisor


class Requests(NamedTuple):
    """There is a request in the run's folder."""


class ClientShell(NamedTuple):
    """A client wants a shell, on `node` or on any."""

    argv: tuple[str, ...] = ()
    node: Optional[str] = None
    term: Optional[str] = None
    rows: int = 24
    columns: int = 80


FromSupervisor = Union[
    Welcome, Lease, Clear, Bye, Ack, Container, Setup, Checks, Port, Clock, StageOrder, Ranks, Stop, Signal, StopRequest, StopAt,
    Gather, Observe, ProfileRanks, PoolTasks, Shell, ShellInput, ShellResize,
]  # fmt: skip
FromAgent = Union[
    Hello, Alive, Cleared, ContainerDone, ContainerLost, SetupDone, ChecksOutput, ChecksDone, FreePorts, Time,
    Staging, RanksStarted, RanksEnded, StopAnswers, Telemetry, Gathered, PoolNews, ShellOutput, ShellExit,
]  # fmt: skip
FromClient = Union[Requests, ClientShell, ShellInput, ShellResize]
ToClient = Union[ShellOutput, ShellExit]
Message = Union[FromSupervisor, FromAgent, FromClient, ToClient]
M = TypeVar("M")

_RANK_STEP = row(RankStep, "[rank, step]", INTEGER, INTEGER)
_STOP_ANSWER = row(StopAnswer, "[rank, step or null]", INTEGER, or_none(INTEGER))
_STARTED = row(StartedRank, "[rank, pid]", INTEGER, INTEGER)
_ENDED = row(
    EndedRank,
    "[rank, code, signal, reason, seconds, message]",
    *(INTEGER, or_none(INTEGER), or_none(TEXT), TEXT, NUMBER, or_none(TEXT)),
)
_CAPPED = row(CappedValues, "[rank, values]", INTEGER, INTEGER)
_CORES = row(CoreSlots, "[NUMA node or null, cores, CPUs]", or_none(INTEGER), INTEGER, TEXT)
_INSTANCE = row(InstanceSlot, "[UUID, bytes or null]", TEXT, or_none(INTEGER))
_INSTANCES = each(_INSTANCE, "a list of [UUID, bytes or null]")
_GPU = row(GpuSlot, "[UUID, CPUs, bytes or null, instances]", TEXT, TEXT, or_none(INTEGER), _INSTANCES)
_STAND = row(
    RankStand,
    "[rank, stands_s, idle_s, usual_s or null, began, why]",
    *(INTEGER, NUMBER, NUMBER, or_none(NUMBER), TRUTH, TEXT),
)
_FOUND = row(NodeFinding, "[cause, level, shared, finding]", TEXT, INTEGER, TRUTH, OBJECT)
_KIND = row(KindTimes, "[seconds, looks, longest_s, squares]", NUMBER, INTEGER, NUMBER, NUMBER)
_DIGEST = row(
    RankDigest,
    "[rank, window_s, steps, four kinds of time, delayed_s, unseen_s, faults, throttled_s]",
    *(INTEGER, NUMBER, INTEGER, _KIND, _KIND, _KIND, _KIND, NUMBER, NUMBER, INTEGER, NUMBER),
)
_LINK = row(SlowLink, "[address, queued_bytes, retransmits]", TEXT, INTEGER, INTEGER)
_PLACE = row(RankPlace, "[attempt, rank, place]", INTEGER, INTEGER, OBJECT)
_RANK_FOUND = row(RankFinding, "[rule, text, next]", TEXT, TEXT, TEXT)
_FORMS = {
    **FORMS,
    "tuple[RankFinding, ...]": each(_RANK_FOUND, "a list of [rule, text, next]"),
    "Slots": row(
        Slots, "[cores, GPUs, bytes of memory]", each(_CORES, "a list of cores"), each(_GPU, "a list of GPUs"), INTEGER
    ),
    "tuple[RankStep, ...]": each(_RANK_STEP, "a list of [rank, step]"),
    "tuple[StartedRank, ...]": each(_STARTED, "a list of [rank, pid]"),
    "tuple[EndedRank, ...]": each(_ENDED, "a list of [rank, code, signal, reason, seconds, message]"),
    "tuple[StopAnswer, ...]": each(_STOP_ANSWER, "a list of [rank, step or null]"),
    "tuple[CappedValues, ...]": each(_CAPPED, "a list of [rank, values]"),
    "Optional[tuple[RankStand, ...]]": or_none(each(_STAND, "a list of ranks that stand")),
    "tuple[NodeFinding, ...]": each(_FOUND, "a list of findings"),
    "Optional[tuple[RankDigest, ...]]": or_none(each(_DIGEST, "a list of what ranks did in a window")),
    "tuple[SlowLink, ...]": each(_LINK, "a list of [address, queued_bytes, retransmits]"),
    "tuple[RankPlace, ...]": each(_PLACE, "a list of [attempt, rank, place]"),
    "Optional[LogFile]": or_none(row(LogFile, "[name, bytes]", TEXT, INTEGER)),
}
_FORMS["tuple[DataSave, ...]"] = each(
    record(DataSave, _FORMS, "a position that was saved"), "a list of saved positions"
)
_FORMS["tuple[DataRead, ...]"] = each(record(DataRead, _FORMS, "a data set's state"), "a list of data sets' states")


_SENT: dict[type, tuple[str, tuple[str, ...], Mapping[str, Any]]] = {}


class Kinds(Generic[M]):
    """The messages that one side may send, by what they are called on the wire; a type has one name there."""

    def __init__(self, **classes: Any) -> None:
        self.classes: Mapping[str, Any] = classes
        self.fields = {kind: fields_of(cls, _FORMS) for kind, cls in classes.items()}
        _SENT.update({cls: (kind, cls._fields, cls._field_defaults) for kind, cls in classes.items()})


FROM_SUPERVISOR: Kinds[FromSupervisor] = Kinds(
    welcome=Welcome,
    lease=Lease,
    clear=Clear,
    bye=Bye,
    ack=Ack,
    container=Container,
    setup=Setup,
    checks=Checks,
    port=Port,
    clock=Clock,
    stage=StageOrder,
    ranks=Ranks,
    stop=Stop,
    signal=Signal,
    stop_request=StopRequest,
    stop_at=StopAt,
    gather=Gather,
    observe=Observe,
    profile=ProfileRanks,
    pool_tasks=PoolTasks,
    shell=Shell,
    shell_input=ShellInput,
    shell_resize=ShellResize,
)
FROM_AGENT: Kinds[FromAgent] = Kinds(
    hello=Hello,
    alive=Alive,
    cleared=Cleared,
    container_done=ContainerDone,
    container_lost=ContainerLost,
    setup_done=SetupDone,
    checks_output=ChecksOutput,
    checks_done=ChecksDone,
    port=FreePorts,
    clock=Time,
    staging=Staging,
    ranks_started=RanksStarted,
    ranks_ended=RanksEnded,
    stop_answers=StopAnswers,
    telemetry=Telemetry,
    gathered=Gathered,
    pool_news=PoolNews,
    shell_output=ShellOutput,
    shell_exit=ShellExit,
)
FROM_CLIENT: Kinds[FromClient] = Kinds(
    requests=Requests, shell=ClientShell, shell_input=ShellInput, shell_resize=ShellResize
)
TO_CLIENT: Kinds[ToClient] = Kinds(shell_output=ShellOutput, shell_exit=ShellExit)


def kind_of(message: Message) -> str:
    """Return what a message is called on the wire."""
    return _SENT[type(message)][0]


def encode(message: tuple[Any, ...]) -> dict[str, Any]:
    """Return a message of any `Kinds` as it is sent; its parts that are tuples become lists there."""
    kind, names, defaults = _SENT[type(message)]
    document: dict[str, Any] = dict(zip(names, message))
    if defaults:
        leave_out(document, defaults)
        if isinstance(message, Telemetry) and message.data:
            document["data"] = [_plain(said) for said in message.data]
    document["t"] = kind
    return document


def decode(document: Mapping[str, Any], kinds: Kinds[M]) -> M:
    """Return the message that was sent.

    Args:
        document: the JSON object.
        kinds: what the other end may send.

    Raises:
        WireError: it is of an unknown kind, or a field is missing, too long or of another type.
    """
    kind = document.get("t")
    fields = kinds.fields.get(kind) if type(kind) is str else None
    if fields is None:
        raise WireError(
            "a message is of a kind that is not known here",
            given=shown(kind),
            allowed=", ".join(kinds.classes),
            next="use the same version of Cordée on both ends",
        )
    message: M = kinds.classes[str(kind)](*read_fields(fields, document, f"the message {kind!r}"))
    return message


def _plain(said: DataRead) -> dict[str, Any]:
    """Return what is sent as an object within a message."""
    document = said._asdict()
    leave_out(document, DataRead._field_defaults)
    if said.saves:
        saves = document["saves"] = [save._asdict() for save in said.saves]
        for save in saves:
            leave_out(save, DataSave._field_defaults)
    return document
