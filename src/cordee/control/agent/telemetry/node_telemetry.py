"""What a node measures and its ranks log, on its way to the supervisor: kept until it is acknowledged."""

from __future__ import annotations

from collections import deque
from typing import Any, Callable, Iterable, Iterator, Mapping, NamedTuple, Optional, Sequence

from cordee.control.agent.companions import TimeSpent
from cordee.control.agent.ranks.channels import RankChannels
from cordee.core.clock import unix_s
from cordee.runs.plan import RunSampling
from cordee.telemetry.node.blocklog import (
    GRID,
    SCHEMA,
    decode_json,
    encode_grid,
    encode_record,
    encode_schema,
    iter_records,
)
from cordee.telemetry.node.samplers._base import Sampler
from cordee.telemetry.node.samplers.device_facts import DeviceFacts
from cordee.wire.messages import CappedValues, LogFile, NodeFinding, RankStand, RankStep
from cordee.wire.messages import Telemetry as Told

_MOST_UNACKNOWLEDGED = 120
# The wire takes messages of 16 MiB, and gives up a peer that leaves 64 MiB unread: what ranks logged is below 10 MiB in a
# message (see READ_BYTES), all else below this, and what is sent again to a new supervisor is little more than twice this.
_MOST_BODY_BYTES = 4 << 20
_MOST_UNACKNOWLEDGED_BYTES = 24 << 20

Send = Callable[[Told, bytes], None]


class _Kept(NamedTuple):
    """A message that is not acknowledged, and how far it was read for it, by channel."""

    message: Told
    body: bytes
    cursors: dict[str, int]


class NodeTelemetry:
    """Samples the node and its ranks, reads the channels, and sends numbered messages until they are acknowledged.

    Args:
        node: the node's name.
        channels: the ranks' channels.
        pids: returns the main pid of each running global rank.
        sampling: how often samples are taken.
        samplers: of the node, and of its ranks.
        about_ranks: returns facts of the global ranks that run.
        troubles: sentences about this node that are told along; there may be more of them later.
        stands, findings: return which ranks have not gone on for some seconds, and what was found, told as it is at the moment.
        spent: return what ranks did in windows that have ended since it was called before: told once, and lost with its message.
    """

    def __init__(
        self,
        node: str,
        channels: RankChannels,
        pids: Callable[[], dict[int, int]],
        sampling: RunSampling,
        samplers: tuple[Sampler, Sampler],
        about_ranks: Callable[[], dict[str, dict[str, Any]]] = dict,
        troubles: Sequence[str] = (),
        stands: Callable[[], tuple[RankStand, ...]] = tuple,
        findings: Callable[[], tuple[NodeFinding, ...]] = tuple,
        spent: Callable[[], TimeSpent] = TimeSpent,
    ) -> None:
        self.connected = False
        self._cadence_s = sampling.interval_s
        self._node = node
        self._channels = channels
        self._pids = pids
        self._about_ranks = about_ranks
        self._node_sampler, self._rank_sampler = samplers
        self._told = {group: DeviceFacts(node, group) for group in ("node", "rank")}
        self._records: list[bytes] = []
        self._schemas: dict[int, bytes] = {}
        self._unacknowledged: deque[_Kept] = deque()
        self._unacknowledged_bytes = 0
        self._sequence = 0
        self._lost_samples = 0
        self._held_back = False
        self._troubles, self._stands, self._findings = troubles, stands, findings
        self._spent = spent

    def sample(self, attempt: int) -> None:
        """Take one sample of every source."""
        if self._is_full:
            self._lost_samples += 1
            return
        moment = unix_s()
        self._take("node", self._node_sampler, moment, {})
        if self._pids():
            self._take("rank", self._rank_sampler, moment, self._about_ranks())

    def add(self, records: bytes) -> None:
        """Take whole records of another process that measures; its samples are under the same limit as ours."""
        full = self._is_full
        for kind, body in iter_records(records):
            record = encode_record(kind, bytes(body))
            if (kind == GRID and full) or len(record) > _MOST_BODY_BYTES:
                self._lost_samples += 1
                continue
            if kind == SCHEMA:
                self._schemas[decode_json(body)["id"]] = record
            self._records.append(record)

    def send(self, send: Send, log: Optional[tuple[str, int]] = None, **of_output: int) -> None:
        """Send what was sampled and logged since the last time; also when there is nothing, as a sign of life.

        `of_output` is said along: `dropped_log_bytes`, `queued_log_bytes`. As many messages as it takes; what is too much for now stays where it is: in the ranks' channels.
        """
        if not self.connected:
            return
        about: dict[str, Any] = {
            **of_output,
            "log": None if log is None else LogFile(*log),
            "lost_samples": self._lost_samples,
            "troubles": tuple(self._troubles),
        }
        bodies = list(_packed(self._records)) or [b""]
        self._records.clear()
        for body in bodies:
            self._send_one(send, about, body)
        unread = self._channels.unread_bytes
        while unread and not self._is_full:
            self._send_one(send, about, b"")
            before, unread = unread, self._channels.unread_bytes
            if unread >= before:  # what is damaged is passed over a moment later, and ranks may log faster than this
                break
        self._held_back = self._is_full and unread > 0

    def _send_one(self, send: Send, about: Mapping[str, Any], body: bytes) -> None:
        cursors: dict[str, int] = {}
        steps: dict[int, int] = {}
        if not self._is_full:
            records, cursors, steps = self._channels.read()
            body += records
        kept = bool(body or cursors)
        message = Told(
            sequence=self._sequence if kept else None,
            steps=tuple(RankStep(*step) for step in steps.items()),
            total=self._channels.total,
            now=unix_s(),
            capped_values=tuple(CappedValues(*capped) for capped in self._channels.capped_values),
            data=self._channels.data.news(),
            found=tuple(self._channels.found),
            places=tuple(self._channels.places),
            unread_bytes=self._channels.unread_bytes,
            **about,
        )
        self._channels.found, self._channels.places = [], []
        if kept:
            self._unacknowledged.append(_Kept(message, body, cursors))
            self._unacknowledged_bytes += len(body)
            self._sequence += 1
        now: dict[str, Any] = {"stands": self._stands(), "findings": self._findings(), **self._spent()._asdict()}
        send(message._replace(**now), body)

    @property
    def _is_full(self) -> bool:
        return (
            len(self._unacknowledged) >= _MOST_UNACKNOWLEDGED
            or self._unacknowledged_bytes >= _MOST_UNACKNOWLEDGED_BYTES
        )

    def resend(self, send: Send) -> None:
        """A supervisor (perhaps a new one) is there: tell it all schemas again and everything not acknowledged."""
        self.connected = True
        for body in _packed(self._schemas.values()):
            send(Told(None, ()), body)
        for kept in self._unacknowledged:
            send(kept.message, kept.body)

    def acknowledge(self, sequence: int) -> bool:
        """Forget the messages up to `sequence`: they are stored. Return whether there is room for what was held back."""
        while self._unacknowledged and (self._unacknowledged[0].message.sequence or 0) <= sequence:
            kept = self._unacknowledged.popleft()
            self._unacknowledged_bytes -= len(kept.body)
            self._channels.acknowledge(kept.cursors)
        return self._held_back and not self._is_full

    def _take(self, group: str, sampler: Sampler, moment: float, more: dict[str, dict[str, Any]]) -> None:
        values = sampler.sample()
        devices = sampler.devices()
        if not devices:
            return
        schema, encoded = encode_schema(self._node, group, self._cadence_s, devices, sampler.metrics(), None)
        if schema not in self._schemas:
            self._schemas[schema] = encoded
            self._records.append(encoded)
        self._records.append(encode_grid(schema, moment, values))
        self._records.append(self._told[group].news(sampler, moment, more))


def _packed(records: Iterable[bytes]) -> Iterator[bytes]:
    """Yield whole records together, as many as a message may hold beside what ranks logged."""
    together: list[bytes] = []
    size = 0
    for record in records:
        if together and size + len(record) > _MOST_BODY_BYTES:
            yield b"".join(together)
            together, size = [], 0
        together.append(record)
        size += len(record)
    if together:
        yield b"".join(together)
