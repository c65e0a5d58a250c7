"""What must hold whatever happens: looked at after each event, and at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cordee.control.supervisor.decisions.restart import MOST_LOSSES
from cordee.core.errors import RunFolderError
from cordee.runs.journal import JournalWriter, read_journal
from cordee.runs.state import Replay, RunState
from cordee.telemetry.node.blocklog import EVENTS, decode_json, iter_records, list_parts, read_blocks
from support.simulation.loop import VirtualProcess
from support.simulation.orders import OrderWatch
from support.simulation.records import Records
from support.simulation.surroundings import WorldPort

if TYPE_CHECKING:
    from support.simulation.machine import VirtualChild
    from support.simulation.network import VirtualConnection

_CANCEL_S = 40.0
_STANDS_DOWN_S = 12.0
_OF_RANKS = ("crash_loop", "retries", "not_started", "refused_file")
PHASE_OF = {
    "submitted": "queue",
    "supervisor_started": "connect",
    "vetting_started": "vet",
    "attempt_started": "start",
    "rank_started": "train",
    "stop_requested": "stop",
    "attempt_ended": "restart",
    "segment_ended": "queue",
    "ended": "end",
}
PHASES = tuple(dict.fromkeys(PHASE_OF.values()))


class Rules:
    """Watches one world.

    Attributes:
        violations: (rule, what was seen), each rule once.
        ended: whether the journal says, in its file, that the run is over.
        end: how it is over, then.
        calm_at: when the last fault is over.
        journal: all of it, at the end.
        phase: of the run, as its journal says.
        rank_faults: how often a rank was made to fail by itself.
        only_suspended: whether nothing befalls the run but that its job is suspended.
        excused: nodes that were silent for so long that an unknown verdict is right.
    """

    def __init__(self, world: WorldPort) -> None:
        self._world = world
        self.violations: list[tuple[str, str]] = []
        self.ended = False
        self.phase = "queue"
        self.rank_faults = 0
        self.only_suspended = False
        self._to_start = 0
        self.excused: set[str] = set()
        self._epoch, self._epoch_at = 0, 0.0
        self._obeyed: dict[int, int] = {}
        self._alive: list[tuple[VirtualChild, VirtualProcess]] = []
        self._cancelled_at: float | None = None
        self.calm_at = 0.0
        self.end: dict[str, Any] = {}
        self._decided: list[tuple[dict[str, Any], float]] = []
        self._newest_attempt = (0, 0)
        self._failed_attempts = self._losses = 0
        self._saved: dict[tuple[int, int], int] = {}
        self.journal: list[dict[str, Any]] = []
        self.records = Records()
        self.orders = OrderWatch(world, self.broken)

    def broken(self, rule: str, seen: str) -> None:
        """Note that a rule does not hold."""
        if all(rule != known for known, _ in self.violations):
            self._world.note(f"BROKEN: {rule}: {seen}")
            self.violations.append((rule, seen))

    def rank_started(self, child: VirtualChild) -> None:
        """No rank of an older attempt may be there, unless it is held where time does not count."""
        self._alive = [(other, process) for other, process in self._alive if process.alive]
        mine = (child.epoch, child.attempt)
        for other, process in self._alive:
            theirs = (other.epoch, other.attempt)
            agent = other.host.agent
            escaped = process.paused or process.held or other.host.stuck_s > 0 or (agent is not None and agent.paused)
            if theirs != mine and not escaped:
                self.broken("two attempts at once", f"{process.name} lives as {child.process.name} starts")
            elif theirs == mine and other.rank == child.rank:
                self.broken("a rank was started twice", child.process.name)
        if mine < self._newest_attempt:
            self.broken("an older attempt was started", f"{child.process.name}, after {self._newest_attempt}")
        if mine > self._newest_attempt:
            self._began_from(child, mine)
        self._newest_attempt = max(mine, self._newest_attempt)
        self._alive.append((child, child.process))

    def _began_from(self, child: VirtualChild, mine: tuple[int, int]) -> None:
        newest = max((step for attempt, step in self._saved.items() if attempt < mine), default=0)
        if child.resumed < newest and self._world.alone:
            self.broken(
                "a complete checkpoint was lost", f"{child.process.name} begins from {child.resumed}, not {newest}"
            )

    def saved(self, child: VirtualChild, step: int) -> None:
        """Only the newest attempt saves."""
        if (child.epoch, child.attempt) < self._newest_attempt and not (child.process.held or child.host.stuck_s):
            self.broken("two attempts write", f"{child.process.name} saves step {step}, after {self._newest_attempt}")
        self._saved[child.epoch, child.attempt] = step

    def cancel_asked(self, at: float) -> None:
        """Somebody has asked for the run's end."""
        if not self.ended:
            self._cancelled_at = at

    def journaled(self, writer: JournalWriter, event: dict[str, Any]) -> None:
        """An event was given to the journal."""
        self.records.add(writer, event)
        name, epoch = event["event"], event["epoch"]
        self.phase = PHASE_OF.get(name, self.phase)
        self._world.note(f"journal {epoch}/{event['seq']} {name} {_brief(event)}")
        if epoch > self._epoch:
            self._epoch, self._epoch_at = epoch, self._world.loop.now
        again = name == "ended" and _end(event) == self.end  # by whoever claimed a run whose end was decided
        if name == "ended":
            self._decided.append((_end(event), self._world.loop.now))
        if self.ended and not again and not self._world.blind and name in ("ended", "attempt_started", "segment_ended"):
            self.broken("ended is final", f"{name} of epoch {epoch} after {self.end}")
        if name == "supervisor_started":
            self._losses = 0
            self.orders.starts += 1
            self.orders.lost()
        if name in ("node_lost", "node_connected"):
            self.orders.starts += 1
            self.orders.lost(event["node"])
        leads_s = self._world.loop.now - self._epoch_at - self.orders.trouble_s
        if name == "attempt_started" and epoch < self._epoch and leads_s > _STANDS_DOWN_S:
            self.broken("an older epoch leads", f"attempt {event['attempt']} of epoch {epoch}")
        if name == "node_verdict" and event["verdict"] in ("bad", "unknown") and event["node"] not in self.excused:
            reasons = [result["evidence"] for result in event["results"] if result["status"] != "pass"]
            self.broken("a healthy node was judged", f"{event['node']} is {event['verdict']}: {reasons[:2]}")
        if name == "attempt_ended":
            self._losses = (0 if event["progress"] else self._losses) + 1 if event["outcome"] == "node_lost" else 0
        if name == "attempt_started" and self._losses >= MOST_LOSSES:
            self.broken("nodes are lost without an end", f"attempt {event['attempt']} after {self._losses} losses")
        if name == "attempt_started":
            self._to_start = event["world_size"]
        if name == "rank_started":
            self._to_start -= 1
        suspended = self.only_suspended and self._to_start <= 0  # an order to start may be too old when it is heard
        if name == "attempt_ended" and suspended and event["outcome"] != "finished":
            self.broken("a suspension ends ranks", f"attempt {event['attempt']}: {event['reason']}")
        if name == "attempt_ended" and event["outcome"] == "failed":
            self._failed_attempts += 1
            if self._failed_attempts > self.rank_faults:
                self.broken("node loss counted as failure", f"attempt {event['attempt']}: {event['reason']}")
        self.stored(writer)

    def stored(self, writer: JournalWriter) -> None:
        """A writer may have got further."""
        for event in self.records.look(writer):
            if event["event"] == "ended" and not self.ended:
                self._see_end(event)

    def _see_end(self, event: dict[str, Any]) -> None:
        self.ended, self.end = True, _end(event)
        self._judge_end(str(event["state"]), str(event["reason"]))

    def power_lost(self) -> None:
        """The first node is gone, with what it had written and not made durable."""
        self.records.power_lost()
        if self.ended and not self.records.has("ended"):
            self.ended, self.end = False, {}

    def sent(self, end: VirtualConnection, message: dict[str, Any]) -> None:
        """A message is sent."""
        self.orders.sent(end.node, end.to_node, message)
        if not end.to_node and end.process is not None and message.get("t") != "hello":
            obeyed = max(end.peer_epoch, self._obeyed.get(end.process.pid, 0))
            self._obeyed[end.process.pid] = obeyed
            if end.peer_epoch < obeyed:
                self.broken("an agent obeys an older epoch", f"{end.process.name}: {end.peer_epoch} after {obeyed}")
        if end.to_node and message.get("t") == "ranks":
            of = {"epoch": message["epoch"], "attempt": message["attempt"]}
            if not self.records.has("attempt_started", **of):
                self.broken("an effect before its durable event", f"ranks of {of} are ordered")

    def took_over(self, before: RunState) -> None:
        """A supervisor has begun, with this state."""
        least, most = (_attempt_and_cancel(events) for events in (self.records.written, self.records.appended))
        found = (before.attempt, before.cancel_requested)
        if not all(low <= is_now <= high for low, is_now, high in zip(least, found, most, strict=True)):
            self.broken("the replay differs from the journal", f"{found}: {least} is written, {most} was appended")

    def left(self, code: int | None) -> None:
        """A supervisor has ended as one does that has done its part."""
        continued = self.records.has("segment_ended")
        if not self.ended:  # the disk may have refused an end late, and have it all the same
            for event in read_journal(self._world.folder.journal):
                continued = continued or event["event"] == "segment_ended"
                if event["event"] == "ended":
                    self._see_end(event)
        goes_on = not self.ended
        if code == 0 and not (continued if goes_on else self.end.get("state") == "finished"):
            self.broken("the exit disagrees with the journal", f"code 0: {self.end}")
        if code == 100 and (goes_on or self.end.get("state") == "finished"):
            self.broken("the exit disagrees with the journal", f"code 100: {self.end}")

    def _judge_end(self, state: str, reason: str) -> None:
        if state == "failed" and reason in _OF_RANKS and self.rank_faults < 2:
            self.broken("node loss counted as failure", f"{self.end} with {self.rank_faults} failures of ranks")
        if state == "failed" and reason == "vetting" and not self.excused:
            self.broken("aborted by vetting", str(self.end))
        if state == "failed" and reason == "internal":
            self.broken("an internal error", str(self.end))
        if state == "cancelled" and self._cancelled_at is None:
            self.broken("nobody has cancelled the run", str(self.end))
        asked = self._cancelled_at
        decided_at = next((at for end, at in self._decided if end == self.end), self._world.loop.now)
        if asked is not None and decided_at > max(asked, self.calm_at) + _CANCEL_S and state != "cancelled":
            self.broken("a cancel was lost", f"asked for at {self._cancelled_at}, and the run is {state}")

    def at_end(self, in_time: bool) -> None:
        """Look at what is left when it is over, or should be."""
        if not in_time:
            self.broken("the run does not end", f"its phase is {self.phase}: {self._world.trace[-1]}")
        else:
            left = [process.name for process in self._world.loop.processes if process.alive]
            if left:
                self.broken("something is left behind", ", ".join(left[:5]))
        for about in self._world.loop.unhandled:
            error = about.get("exception")
            if error is not None and not isinstance(error, (OSError, GeneratorExit)):
                self.broken("a handler raised", f"{about.get('message')}: {error!r}"[:300])
        self._look_at_the_journal()
        if not (self._world.disk.lost and self._epoch > 1):  # what was refused is written again by whoever lives
            self._look_at_telemetry()

    def _look_at_the_journal(self) -> None:
        events = self.journal = read_journal(self._world.folder.journal)
        replay, ends = Replay("simulated-run"), []
        try:
            for count, event in enumerate(events, 1):
                state = replay.feed([event])
                if vars(state) != vars(Replay("simulated-run").feed(events[:count])):
                    self.broken("a replay depends on when it is read", f"event {count}: {event}")
                if event["event"] == "attempt_started" and (state.ended or state.ended_at is not None):
                    self.broken("a run that trains counts as ended", f"event {count}: {event}")
                if event["event"] == "ended" and _end(event) not in ends:
                    ends.append(_end(event))
        except RunFolderError as error:
            self.broken("the journal does not replay", str(error))
        if len(ends) > 1 and not self._world.blind:  # an older supervisor may end a run that a newer one leads
            self.broken("ended is unique", str(ends))
        for event in self.records.lost(events):
            self.broken("a durable event was lost", _brief(event) or event["event"])
        self.orders.at_end(len(events))
        last: dict[str, int] = {}
        for event in events:
            if event["writer"] != "client" and event["seq"] != last.get(event["writer"], -1) + 1:
                self.broken("a durable event was lost", f"{event['writer']} before {event['seq']}")
            last[event["writer"]] = event["seq"]

    def _look_at_telemetry(self) -> None:
        stored: dict[tuple[int, int], set[int]] = {}
        for _, _, path in list_parts(self._world.folder.telemetry):
            for _, _, payload in read_blocks(path):
                for kind, body in iter_records(payload):
                    if kind == EVENTS:
                        document = decode_json(body)
                        steps = stored.setdefault((document["attempt"], document["rank"]), set())
                        steps.update(event[0] for event in document["events"])
        for channel in self._world.channels.values():
            missing = set(channel.logged[: channel.stored]) - stored.get((channel.attempt, channel.rank), set())
            if missing:
                self.broken("what was acknowledged is not stored", f"{channel.attempt}-{channel.rank}: {missing}")


def _brief(event: dict[str, Any]) -> str:
    keys = (
        "node",
        "rank",
        "attempt",
        "outcome",
        "reason",
        "code",
        "signal",
        "verdict",
        "state",
        "text",
        "finding",
        "step",
    )
    told = {key: event[key] for key in keys if event.get(key) is not None}
    if "finding" in told:
        told["finding"] = told["finding"]["text"][:200]
    return " ".join(f"{key}={value}" for key, value in told.items())


def _attempt_and_cancel(events: list[dict[str, Any]]) -> tuple[int, bool]:
    """Return the newest attempt, and whether a cancel was asked for."""
    attempts = (event["attempt"] for event in events if event["event"] == "attempt_started")
    return max(attempts, default=0), any(event["event"] == "cancel_requested" for event in events)


def _end(event: dict[str, Any]) -> dict[str, Any]:
    """Return what `ended` says."""
    return {key: event.get(key) for key in ("state", "reason", "text")}
