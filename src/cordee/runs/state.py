"""A run's state is a replay of its journal."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any, Callable, Optional

from cordee.core.errors import RunFolderError
from cordee.core.findings import Finding
from cordee.core.units import parse_utc
from cordee.runs.checkpoint import Doubt

STATES = ("queued", "running", "finished", "failed", "cancelled")
ENDED = ("finished", "failed", "cancelled")
_CLOCKS_S = 60.0  # of two machines, which need not agree


@dataclass
class Phase:
    """A stretch of the run's time: `queue, connect, vet, setup, stage, start, train, restart, end`; epoch seconds, UTC.

    `segment` is the one that it belongs to, from 1; waiting for nodes belongs to the segment that gets them.
    """

    name: str
    start: float
    end: Optional[float] = None
    segment: int = 1


@dataclass
class SegmentState:
    """One allocation of the run.

    Attributes:
        number: from 1.
        queued_at, started_at, ended_at: waiting began, its supervisor started, it ended; epoch seconds, UTC.
        job: the scheduler's name of it, None where there is no scheduler.
        partition: where the scheduler put it, None when that is not known.
        nodes: their names, in the order in which they came.
        reason: why it ended: as in the journal's `segment_ended` or `ended`; empty while it goes on.
        checkpoint: the newest complete one at its end.
        progress: whether that one is new; None when the segment ended with the run.
        next: who has the next segment start; empty when none follows.
    """

    number: int
    queued_at: Optional[float] = None
    started_at: Optional[float] = None
    ended_at: Optional[float] = None
    job: Optional[str] = None
    partition: Optional[str] = None
    nodes: list[str] = field(default_factory=list)
    reason: str = ""
    checkpoint: Optional[str] = None
    progress: Optional[bool] = None
    next: str = ""


@dataclass
class NodeState:
    """What is known of one node: `verdict` is healthy, suspect, bad or unknown; `role` is active, spare, excluded or lost;
    `suspected` says why another node is to take its place at the next restart.
    """

    node: str
    verdict: str = "unknown"
    role: str = "spare"
    host: str = ""
    ranks: list[int] = field(default_factory=list)
    results: list[dict[str, Any]] = field(default_factory=list)
    reason: str = ""
    suspected: str = ""


@dataclass
class RankState:
    """The newest attempt's view of one rank: `status` is running, exited or failed."""

    rank: int
    node: str
    status: str = "running"
    pid: Optional[int] = None
    code: Optional[int] = None
    signal: Optional[str] = None


@dataclass
class RunState:
    """Everything that the journal says about a run, at the moment it was read.

    Attributes:
        job: the scheduler's name of the job that holds the run, or will.
        allocation: `{job, requeues}` of the newest supervisor; None where there is no scheduler.
        segment_checkpoint: the newest complete checkpoint when the segment began.
        chain: the segments that have ended before the run did, since it was resumed: `{segment, reason, checkpoint,
            progress, next}`.
        segment_states: all segments, the one that is waited for included.
        vetting: the newest allocation document (`cordee.vetting/1`), without results.
        checkpoint: this run's newest complete one.
        doubts: checkpoints that attempts do not begin with, in the order in which they came to be doubted.
        began_from: what its first attempt began from, or the first after a resume: `{path, run, other}`, `other` when it
            was not the run's own; None at zero.
        services: how each service of the job is, by its name: `{service, node, state, url, why, seconds}`.
        staged: what was brought to which node: `{node, data, tier, path, bytes, source_bytes, peer_bytes, seconds, reason}`.
        data_reads: how far each attempt's ranks were in each data set, and `saves` by position.
        resumed_epoch: the newest epoch when a person last had it continue; 0: nobody has.
        children: the runs below this one that were placed or have ended: `{name, run, state, job, exit_code, reason, text,
            outcome}`; `state` is placed, finished, failed, cancelled or skipped.
        hold_released: of the job that a command released after its scheduler held it by itself: `{at, job, held, refused}`;
            `refused` says why it could not.
    """

    run: str = ""
    state: str = "queued"
    exit_code: Optional[int] = None
    segments: int = 0
    restarts: int = 0
    attempt: int = 0
    world_size: int = 0
    nodes: list[NodeState] = field(default_factory=list)
    ranks: list[RankState] = field(default_factory=list)
    phases: list[Phase] = field(default_factory=list)
    staged: list[dict[str, Any]] = field(default_factory=list)
    services: dict[str, dict[str, Any]] = field(default_factory=dict)
    step: Optional[int] = None
    total: Optional[int] = None
    checkpoint: Optional[str] = None
    doubts: list[Doubt] = field(default_factory=list)
    began_from: Optional[dict[str, Any]] = None
    resume_step: Optional[int] = None
    failures: list[dict[str, Any]] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    attempts: list[dict[str, Any]] = field(default_factory=list)
    reason: str = ""
    text: str = ""
    epoch: int = 0
    resumed_epoch: int = 0
    submitted_at: Optional[float] = None
    started_at: Optional[float] = None
    ended_at: Optional[float] = None
    cancel_requested: bool = False
    hold_released: Optional[dict[str, Any]] = None
    sealed_until: Optional[float] = None
    job: Optional[str] = None
    allocation: Optional[dict[str, Any]] = None
    segment_checkpoint: Optional[str] = None
    chain: list[dict[str, Any]] = field(default_factory=list)
    segment_states: list[SegmentState] = field(default_factory=list)
    vetting: Optional[dict[str, Any]] = None
    data_reads: list[dict[str, Any]] = field(default_factory=list)
    children: list[dict[str, Any]] = field(default_factory=list)
    _places: dict[str, NodeState] = field(default_factory=dict, init=False, repr=False, compare=False)
    _starting: int = field(default=0, init=False, repr=False, compare=False)
    _begun: bool = field(default=False, init=False, repr=False, compare=False)

    @property
    def ended(self) -> bool:
        return self.state in ENDED

    def node(self, name: str) -> NodeState:
        """Return the node's entry, made when it is new."""
        if len(self._places) != len(self.nodes):
            self._places = {entry.node: entry for entry in self.nodes}
        entry = self._places.get(name)
        if entry is None:
            entry = self._places[name] = NodeState(name)
            self.nodes.append(entry)
        return entry

    def rank(self, number: int) -> Optional[RankState]:
        """Return the rank's entry, None when the newest attempt has no such rank."""
        if 0 <= number < len(self.ranks) and self.ranks[number].rank == number:
            return self.ranks[number]
        return next((entry for entry in self.ranks if entry.rank == number), None)


def called(result: dict[str, Any]) -> str:
    """Return what the protocol calls a check, else the check's own name."""
    return str(result.get("name") or result.get("check", ""))


def replay(events: list[dict[str, Any]], run: str = "") -> RunState:
    """Return the state after `events` (in the order of `read_journal`); unknown events change nothing.

    Raises:
        RunFolderError: an event does not hold what it should.
    """
    return Replay(run).feed(events)


class Replay:
    """A replay that goes on with later events, for those who follow a run of many nodes."""

    def __init__(self, run: str = "") -> None:
        self._state = RunState(run=run)
        self._clock = _Clock()

    def feed(self, events: list[dict[str, Any]]) -> RunState:
        """Return the state after these events too; what was returned before keeps its lists.

        Raises:
            RunFolderError: an event does not hold what it should.
        """
        for event in events:
            handler = _HANDLERS.get(event["event"])
            try:
                if handler is not None:
                    handler(self._state, event, self._clock.at(event))
            except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
                raise RunFolderError(
                    f"the journal is damaged: its event {event['event'][:50]!r} does not hold what it should",
                    given=f"writer {event['writer'][:50]}, epoch {event['epoch']}, number {event['seq']}: {error!r}"[
                        :300
                    ],
                    allowed="what Cordée writes",
                    next="restore the folder from a copy",
                ) from error
        seen = copy.copy(self._state)
        for name, value in vars(seen).items():
            if isinstance(value, list):
                setattr(seen, name, list(value))
        seen._places = {}
        return seen


class _Clock:
    """Times of events in UTC that do not go backwards within one writer when its wall clock jumps."""

    def __init__(self) -> None:
        self._base: dict[str, tuple[float, float]] = {}

    def at(self, event: dict[str, Any]) -> float:
        wall = parse_utc(event["time"])
        writer, mono = event["writer"], event.get("mono")
        if writer.startswith("client") or mono is None:
            return wall
        base = self._base.setdefault(writer, (wall, mono))
        return base[0] + (float(mono) - base[1])


def _enter(state: RunState, name: str, at: float) -> None:
    if state.phases and state.phases[-1].end is None:
        if state.phases[-1].name == name:
            return
        state.phases[-1].end = max(at, state.phases[-1].start)
    state.phases.append(Phase(name, at, None, state.segment_states[-1].number if state.segment_states else 1))


def _queue(state: RunState, at: float) -> None:
    """The run waits for the nodes of its next segment."""
    newest = state.segment_states[-1] if state.segment_states else None
    if newest is not None and newest.started_at is None:
        newest.ended_at, newest.reason, newest.job = None, "", None
    elif newest is None or newest.ended_at is not None:
        state.segment_states.append(SegmentState(state.segments + 1, queued_at=at))
    _enter(state, "queue", at)


def _close_segment(state: RunState, at: float, reason: str) -> None:
    if state.segment_states and state.segment_states[-1].ended_at is None:
        segment = state.segment_states[-1]
        segment.ended_at, segment.reason, segment.checkpoint = at, reason, state.checkpoint


def _submitted(state: RunState, event: dict[str, Any], at: float) -> None:
    state.submitted_at = at
    _queue(state, at)


def _resume_requested(state: RunState, event: dict[str, Any], at: float) -> None:
    state.state, state.exit_code, state.ended_at = "queued", None, None
    state.cancel_requested, state.reason, state.text = False, "", ""
    state.chain, state._begun = [], event.get("by") == "the scheduler" and state._begun
    if event.get("by") != "the scheduler":
        state.resumed_epoch = event.get("epoch", state.epoch)
    state.children = [entry for entry in state.children if entry["state"] in ("finished", "skipped")]
    if event.get("reason") and state.segment_states:
        state.segment_states[-1].reason = event["reason"]
    _close_segment(state, at, "lost")
    _queue(state, at)


def _cancel_requested(state: RunState, event: dict[str, Any], at: float) -> None:
    state.cancel_requested = True


def _placed(state: RunState, event: dict[str, Any], at: float) -> None:
    state.job = event["job"]
    if state.segment_states and state.segment_states[-1].ended_at is None:
        state.segment_states[-1].job = state.job


def _hold_released(state: RunState, event: dict[str, Any], at: float) -> None:
    state.hold_released = {"at": at, **{key: event[key] for key in ("job", "held", "refused")}}


def _segment_ended(state: RunState, event: dict[str, Any], at: float) -> None:
    at = _seen(state, event, at)
    state.chain.append({key: event.get(key) for key in ("segment", "reason", "checkpoint", "progress", "next")})
    state.state = "queued"
    for node in state.nodes:
        node.ranks = []
    if state.attempts and "outcome" not in state.attempts[-1]:
        state.attempts[-1].update(outcome="segment", reason="its allocation ended", ended_at=at)
    _close_segment(state, at, event["reason"])
    if state.segment_states:
        ended = state.segment_states[-1]
        ended.checkpoint, ended.progress, ended.next = event.get("checkpoint"), event.get("progress"), event["next"]
    _queue(state, at)


def _seen(state: RunState, event: dict[str, Any], at: float) -> float:
    """Return when what an event tells has ended: where nobody was left to write it then, soon after the last sign of life."""
    return _no_sooner(state, min(at, parse_utc(event["seen"]))) if event.get("seen") else at


def _no_sooner(state: RunState, at: float) -> float:
    """Return `at`, or the beginning of the present phase when that is later."""
    return max(at, state.phases[-1].start) if state.phases else at


def _begin_segment(state: RunState, event: dict[str, Any], at: float) -> None:
    state.segments = event["segment"]
    state.segment_checkpoint = event.get("checkpoint")
    state.nodes, state._places = [], {}
    if not state.segment_states or state.segment_states[-1].ended_at is not None:
        state.segment_states.append(SegmentState(state.segments))
    began = event.get("began")  # on the clock of the allocation's first node, which is the supervisor's too
    at = at if began is None else _no_sooner(state, min(at, float(began)))
    segment = state.segment_states[-1]
    segment.number, segment.started_at = state.segments, at
    segment.job, segment.partition = event.get("job"), event.get("partition")
    _enter(state, "connect", at)


def _supervisor_started(state: RunState, event: dict[str, Any], at: float) -> None:
    state.epoch = event["epoch"]
    if state.state == "queued" and state.chain and event.get("segment") == state.chain[-1]["segment"]:
        return  # it only goes on with what follows this segment, which is over
    if state.started_at is None:
        state.started_at = at
    if event.get("segment", 0) > state.segments:
        _begin_segment(state, event, at)
    if event.get("job"):
        state.job = event["job"]
        state.allocation = {"job": event["job"], "requeues": event.get("requeues", 0)}
    if state.ended:
        _go_on_after(state)
    state.state = "running"
    if state.attempts and "outcome" not in state.attempts[-1]:
        state.attempts[-1].update(outcome="superseded", reason="the supervisor was replaced", ended_at=at)
    _enter(state, "connect", at)


def _go_on_after(state: RunState) -> None:
    """A supervisor leads the run though an older one, which had lost it without noticing, said that it is over."""
    state.exit_code, state.ended_at, state.reason, state.text = None, None, "", ""
    if state.segment_states and state.segment_states[-1].number == state.segments:
        state.segment_states[-1].ended_at, state.segment_states[-1].reason = None, ""


def _node_connected(state: RunState, event: dict[str, Any], at: float) -> None:
    node = state.node(event["node"])
    node.host = event.get("host", node.host)
    if state.segment_states and node.node not in state.segment_states[-1].nodes:
        state.segment_states[-1].nodes.append(node.node)
    if node.role == "lost":
        node.role, node.reason = "spare", ""


def _node_lost(state: RunState, event: dict[str, Any], at: float) -> None:
    node = state.node(event["node"])
    node.role, node.reason, node.ranks = "lost", event.get("reason", ""), []


def _vetting_started(state: RunState, event: dict[str, Any], at: float) -> None:
    _enter(state, "vet", at)


def _node_verdict(state: RunState, event: dict[str, Any], at: float) -> None:
    node = state.node(event["node"])
    node.verdict, node.results = event["verdict"], event.get("results", [])
    against = [result for result in node.results if result.get("status") in ("fail", "unknown")]
    if node.verdict in ("bad", "unknown") and against:
        node.reason = f"{called(against[0])}: {against[0].get('evidence', '')}"


def _node_suspected(state: RunState, event: dict[str, Any], at: float) -> None:
    state.node(event["node"]).suspected = event.get("reason", "")


def _nodes_chosen(state: RunState, event: dict[str, Any], at: float) -> None:
    for role, names in (("active", event["nodes"]), ("spare", event["spares"]), ("excluded", event["excluded"])):
        for name in names:
            state.node(name).role = role


def _vetting_verdict(state: RunState, event: dict[str, Any], at: float) -> None:
    state.vetting = event["document"]


def _staging_started(state: RunState, event: dict[str, Any], at: float) -> None:
    _enter(state, "stage", at)


def _node_staged(state: RunState, event: dict[str, Any], at: float) -> None:
    state.staged = [one for one in state.staged if (one["node"], one["data"]) != (event["node"], event["data"])]
    about = ("node", "data", "tier", "path", "bytes", "source_bytes", "peer_bytes", "seconds", "reason")
    state.staged.append({key: event[key] for key in about if key in event})


def _service(state: RunState, event: dict[str, Any], at: float) -> None:
    state.services[event["service"]] = {
        key: event.get(key) for key in ("service", "node", "state", "url", "why", "seconds")
    }


def _setup_started(state: RunState, event: dict[str, Any], at: float) -> None:
    _enter(state, "setup", at)


def _attempt_started(state: RunState, event: dict[str, Any], at: float) -> None:
    state.restarts += 1 if state.attempts and state.attempts[-1].get("segment") == state.segments else 0
    state.attempt, state.world_size = event["attempt"], event["world_size"]
    state.resume_step = event.get("resume_step")
    state.attempts.append(
        {
            "attempt": event["attempt"],
            "segment": state.segments,
            "started_at": at,
            "resume_step": event.get("resume_step"),
            "checkpoint": event.get("checkpoint"),
            "checkpoint_path": event.get("checkpoint_path"),
            "other_run": event.get("other_run"),
            "world_size": event["world_size"],
        }
    )
    _begins(state, event)
    state.ranks = []
    for node in state.nodes:
        node.ranks = []
    for placed in event["nodes"]:
        node = state.node(placed["node"])
        node.ranks, node.role = list(placed["ranks"]), "active"
        state.ranks.extend(RankState(rank, placed["node"], "starting") for rank in placed["ranks"])
    state.ranks.sort(key=lambda rank: rank.rank)
    state._starting = len(state.ranks)
    _enter(state, "start", at)


def _begins(state: RunState, event: dict[str, Any]) -> None:
    """Keep what the first attempt begins from, and the first after a resume."""
    if state._begun:
        return
    state._begun = True
    path, other = event.get("checkpoint_path"), event.get("other_run")
    run = state.run if other is None else other.get("run")
    state.began_from = {"path": path, "run": run, "other": other is not None} if path else None


def _rank_started(state: RunState, event: dict[str, Any], at: float) -> None:
    rank = state.rank(event["rank"])
    if rank is not None:
        state._starting -= rank.status == "starting"
        rank.status, rank.pid = "running", event.get("pid")
    if state._starting <= 0:
        _enter(state, "train", at)


def _rank_exited(state: RunState, event: dict[str, Any], at: float) -> None:
    rank = state.rank(event["rank"])
    if rank is not None:
        rank.code, rank.signal = event.get("code"), event.get("signal")
        state._starting -= rank.status == "starting"
        rank.status = "exited" if event.get("code") == 0 and not event.get("signal") else "failed"


def _attempt_ended(state: RunState, event: dict[str, Any], at: float) -> None:
    if state.attempts:
        state.attempts[-1].update(outcome=event["outcome"], reason=event.get("reason", ""), ended_at=at)
    if event.get("failure"):
        state.failures.append({"attempt": event["attempt"], **event["failure"], "time": at})
    _enter(state, "end" if event["outcome"] in ("finished", "cancelled") else "restart", at)


def _data_read(state: RunState, event: dict[str, Any], at: float) -> None:
    key = (event["attempt"], event["set"], event.get("turn", 1))
    known = (read for read in reversed(state.data_reads) if (read["attempt"], read["set"], read["turn"]) == key)
    read = next(known, None)
    if read is None:
        read = {"attempt": key[0], "set": key[1], "turn": key[2], "saves": {}}
        state.data_reads.append(read)
    read.update((name, event[name]) for name in ("size", "begin", "position", "readers", "given", "dropped"))
    read["saves"].update((save["position"], save) for save in event["saves"])


def _checkpoint_seen(state: RunState, event: dict[str, Any], at: float) -> None:
    state.checkpoint = event["name"]


def _checkpoints_doubted(state: RunState, event: dict[str, Any], at: float) -> None:
    state.doubts = [Doubt.from_document(told) for told in event["doubts"]]


def _progress(state: RunState, event: dict[str, Any], at: float) -> None:
    state.step = event.get("step")
    state.total = event.get("total") or state.total


def _finding(state: RunState, event: dict[str, Any], at: float) -> None:
    replaced = event.get("replaces")  # the text of a finding that this one knows better
    state.findings = [one for one in state.findings if one.text != replaced]
    state.findings.append(Finding.from_document(event["finding"]))


def _child_placed(state: RunState, event: dict[str, Any], at: float) -> None:
    state.children = [entry for entry in state.children if entry["name"] != event["child"]]
    state.children.append({"name": event["child"], "run": event["run"], "state": "placed", "job": event.get("job")})
    state.children[-1]["outcome"] = event.get("outcome") or {}
    if not event.get("main") and not state.ended:
        state.state = "running"
        state.started_at = at if state.started_at is None else state.started_at


def _child_ended(state: RunState, event: dict[str, Any], at: float) -> None:
    known: dict[str, Any] = next((entry for entry in state.children if entry["name"] == event["child"]), {})
    told = {key: event.get(key) for key in ("state", "exit_code", "reason", "text", "outcome")}
    entry = {"run": None, "job": None, **known, "name": event["child"], **told, "ended_at": at}
    state.children = [*(other for other in state.children if other is not known), entry]


def _sealed(state: RunState, event: dict[str, Any], at: float) -> None:
    state.sealed_until = event["until"]


def _ended(state: RunState, event: dict[str, Any], at: float) -> None:
    if event.get("epoch", state.epoch) < state.epoch:  # a late word of a supervisor that another one has followed
        return
    at = _seen(state, event, at)
    state.state, state.exit_code = event["state"], event.get("exit_code")
    state.reason, state.text = event.get("reason", ""), event.get("text", "")
    state.ended_at = at
    state.checkpoint = event.get("checkpoint", state.checkpoint)
    if event.get("cut_off"):
        _undo_wait(state, parse_utc(event["seen"]))
    _close_segment(state, at, state.reason)
    if state.phases and state.phases[-1].end is None:
        state.phases[-1].end = max(at, state.phases[-1].start)


def _undo_wait(state: RunState, taken_at: float) -> None:
    """The run's place took it away while it had its nodes, and it took that for a segment's end that another follows."""
    if len(state.segment_states) < 2 or not state.chain or state.segment_states[-1].started_at is not None:
        return
    last = state.segment_states[-2]
    if state.chain[-1]["segment"] != last.number or (last.ended_at or 0.0) < taken_at - _CLOCKS_S:
        return
    state.segment_states.pop()
    last.ended_at, last.progress, last.next = None, None, ""
    state.chain = state.chain[:-1]
    if state.phases[-1].name == "queue":
        state.phases.pop()


_HANDLERS: dict[str, Callable[[RunState, dict[str, Any], float], None]] = {
    "submitted": _submitted,
    "placed": _placed,
    "continued": _placed,
    "hold_released": _hold_released,
    "segment_ended": _segment_ended,
    "resume_requested": _resume_requested,
    "cancel_requested": _cancel_requested,
    "supervisor_started": _supervisor_started,
    "node_connected": _node_connected,
    "node_lost": _node_lost,
    "vetting_started": _vetting_started,
    "node_verdict": _node_verdict,
    "vetting_verdict": _vetting_verdict,
    "nodes_chosen": _nodes_chosen,
    "node_suspected": _node_suspected,
    "setup_started": _setup_started,
    "staging_started": _staging_started,
    "node_staged": _node_staged,
    "service": _service,
    "attempt_started": _attempt_started,
    "rank_started": _rank_started,
    "rank_exited": _rank_exited,
    "attempt_ended": _attempt_ended,
    "data_read": _data_read,
    "checkpoint_seen": _checkpoint_seen,
    "checkpoints_doubted": _checkpoints_doubted,
    "progress": _progress,
    "finding": _finding,
    "child_placed": _child_placed,
    "child_ended": _child_ended,
    "sealed": _sealed,
    "ended": _ended,
}
