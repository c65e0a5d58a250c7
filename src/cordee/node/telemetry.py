"""What a node measures and its ranks log, on its way to the supervisor: kept until it is acknowledged."""

from __future__ import annotations

import time
from collections import deque
from typing import Any, Callable, Mapping

from cordee.node.channels import RankChannels
from cordee.node.samplers._base import Sampler
from cordee.node.samplers.host import node_sampler, rank_sampler
from cordee.node.samplers.told import ToldFacts
from cordee.runs.blocklog import GRID, SCHEMA, decode_json, encode_grid, encode_record, encode_schema, iter_records

_MOST_UNACKNOWLEDGED = 120

Send = Callable[[dict[str, Any], bytes], None]


class Telemetry:
    """Samples the node and its ranks, reads the channels, and sends numbered messages until they are acknowledged.

    Args:
        node: the node's name.
        channels: the ranks' channels.
        pids: returns the main pid of each running global rank.
        sampling: of plan.json: `interval_s`, the seconds between samples, and whether `threads` are looked at.
        sharing: how many nodes of a local run share this machine.
        about_ranks: returns facts of the global ranks that run.
    """

    def __init__(
        self,
        node: str,
        channels: RankChannels,
        pids: Callable[[], dict[int, int]],
        sampling: Mapping[str, Any],
        sharing: int = 1,
        about_ranks: Callable[[], dict[str, dict[str, Any]]] = dict,
    ) -> None:
        self.connected = False
        self._cadence_s = cadence_s = float(sampling["interval_s"])
        self._node = node
        self._channels = channels
        self._pids = pids
        self._about_ranks = about_ranks
        self._node_sampler = node_sampler(node)
        self._rank_sampler = rank_sampler(pids, cadence_s, sharing=sharing, deep=sampling.get("threads"))
        self._told = {group: ToldFacts(node, group) for group in ("node", "rank")}
        self._records: list[bytes] = []
        self._schemas: dict[int, bytes] = {}
        self._unacknowledged: deque[tuple[int, dict[str, Any], bytes]] = deque()
        self._sequence = 0
        self._lost_samples = 0

    def sample(self, attempt: int) -> None:
        """Take one sample of every source."""
        if len(self._unacknowledged) >= _MOST_UNACKNOWLEDGED:
            self._lost_samples += 1
            return
        moment = time.time()
        self._take("node", self._node_sampler, moment, {})
        if self._pids():
            self._take("rank", self._rank_sampler, moment, self._about_ranks())

    def add(self, records: bytes) -> None:
        """Take whole records of another process that measures; its samples are under the same limit as ours."""
        full = len(self._unacknowledged) >= _MOST_UNACKNOWLEDGED
        for kind, body in iter_records(records):
            record = encode_record(kind, bytes(body))
            if kind == SCHEMA:
                self._schemas[decode_json(body)["id"]] = record
            if kind == GRID and full:
                self._lost_samples += 1
            else:
                self._records.append(record)

    def send(self, send: Send, *, dropped_log_bytes: int = 0) -> None:
        """Send what was sampled and logged since the last time; also when there is nothing, as a sign of life."""
        if not self.connected:
            return
        records = b""
        cursors: dict[str, int] = {}
        steps: dict[int, int] = {}
        if len(self._unacknowledged) < _MOST_UNACKNOWLEDGED:
            records, cursors, steps = self._channels.read()
        body = b"".join(self._records) + records
        message = {
            "t": "telemetry",
            "sequence": self._sequence,
            "cursors": cursors,
            "steps": list(steps.items()),
            "total": self._channels.total,
            "dropped_log_bytes": dropped_log_bytes,
            "lost_samples": self._lost_samples,
            "now": time.time(),
            "capped_values": self._channels.capped_values,
            "data": self._channels.data.news(),
        }
        self._records.clear()
        if body or cursors:
            self._unacknowledged.append((self._sequence, message, body))
            self._sequence += 1
        else:
            message["sequence"] = None
        send(message, body)

    def resend(self, send: Send) -> None:
        """A supervisor (perhaps a new one) is there: tell it all schemas again and everything not acknowledged."""
        self.connected = True
        send({"t": "telemetry", "sequence": None, "steps": []}, b"".join(self._schemas.values()))
        for _, message, body in self._unacknowledged:
            send(message, body)

    def acknowledge(self, sequence: int) -> None:
        """Forget the messages up to `sequence`: they are stored."""
        while self._unacknowledged and self._unacknowledged[0][0] <= sequence:
            _, message, _ = self._unacknowledged.popleft()
            self._channels.acknowledge(message["cursors"])

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
