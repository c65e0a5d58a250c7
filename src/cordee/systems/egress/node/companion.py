"""Beside the ranks of a node: what they send and receive, by class and destination, told with the node's telemetry."""

from __future__ import annotations

import os
import threading
import time
from typing import Any, Mapping, Optional

from cordee.control.agent.companions import Companion, CompanionHost
from cordee.control.agent.orders import Handlers
from cordee.core.clock import monotonic, unix_s
from cordee.runs.folder import say
from cordee.runs.lane import Lane, RepeatedLook
from cordee.runs.plan import RunPlan
from cordee.systems.egress.node.classes import CLASSES, REST, DestinationClasses
from cordee.systems.egress.node.counts import UNTOLD, DestinationTraffic, counts_of
from cordee.telemetry.node.blocklog import encode_facts, encode_grid, encode_schema
from cordee.telemetry.node.catalogue import EGRESS, described

GROUP = "egress"
NODE_DEVICE = "node"  # in facts, what holds for the whole node
_ASK_AGAIN_S = 300.0
_MOST_TOLD = 500  # destinations, those with the most bytes
_MOST_FAILURES = 10
_OFTEN_S, _MOST_COST = 0.1, 0.01  # a look each 0.1 s, or as seldom as it takes to stay below 1 % of a core
_REST_S = 0.3
_LAST_S = 0.05  # ranks that end together are counted once, and the agent waits no longer


class EgressWatch(Companion):
    """Looks at connections every second, or as the profile says, in a thread; see Companion."""

    def __init__(self, plan: RunPlan, node: str) -> None:
        super().__init__(plan, node)
        self._part: Optional[Mapping[str, Any]] = plan.step.systems.get("egress")
        self._host: Optional[CompanionHost] = None
        self._due, self._failures = 0.0, 0
        self._schema: Optional[int] = None
        self._node_egress: Optional[NodeEgress] = None
        self._lane = Lane("cordee-egress")

    def attach(self, host: CompanionHost) -> Handlers:
        if self._part is not None:
            self._host = host
            alone = bool(self.plan.step.request.scheduler.exclusive)
            egress = self._node_egress = NodeEgress(self._part, f"{self.plan.run}/{self.node}/", alone)
            self._looking = RepeatedLook(self._lane, egress.look, self._tell, self._failed)
            self._lane.submit(egress.begin)
        return {}

    def look(self, now: float) -> None:
        if self._part is not None and now >= self._due and self._failures < _MOST_FAILURES:
            self._due = now + self._part["every_s"] - _REST_S
            self._looking.begin()

    def rank_ended(self) -> None:
        if self._host is not None and self._node_egress is not None:
            news = self._node_egress.last_news()
            if news:
                self._host.add(encode_facts(self.node, GROUP, unix_s(), news, {}))

    async def close(self) -> None:
        if self._node_egress is not None:
            self._lane.submit(self._node_egress.close)

    def _tell(self, seen: EgressLook) -> None:
        assert self._host is not None
        assert self._part is not None
        devices = [f"{self.node} {kind}" for kind in CLASSES]
        metrics = [described(metric.name, seen.method) for metric in EGRESS]
        schema, encoded = encode_schema(self.node, GROUP, self._part["every_s"], devices, metrics)
        records = b"" if schema == self._schema else encoded
        self._schema = schema
        records += encode_grid(schema, seen.moment, seen.rates)
        if seen.news:
            records += encode_facts(self.node, GROUP, seen.moment, seen.news, {})
        self._host.add(records)

    def _failed(self, error: BaseException) -> None:
        self._failures += 1
        if self._failures == 1 and self._host is not None:
            text = f"what ranks send is not counted: {type(error).__name__}: {error}"
            say(f"cordee agent {self.node}: {text}")
            self._host.add(encode_facts(self.node, GROUP, unix_s(), {}, {}, [text]))


class EgressLook:
    """What one look has seen.

    Attributes:
        moment: UTC epoch seconds.
        method: how it was counted.
        rates: bytes/s sent, bytes/s received and open connections, of each class.
        news: what is new, by destination: class, name, bytes sent and received, connections; all since the run began here.
    """

    def __init__(self, moment: float, method: str, rates: list[float], news: dict[str, dict[str, Any]]) -> None:
        self.moment, self.method, self.rates, self.news = moment, method, rates, news


class NodeEgress:
    """Counts by class and destination; `look` runs in a thread and begins at its first call.

    Args:
        part: of the plan.
        owner, alone: see `SocketCounts`.
    """

    def __init__(self, part: Mapping[str, Any], owner: str, alone: bool) -> None:
        self._classes = DestinationClasses(part["listed"])
        self._counters, self._owner, self._alone = part["counters"], owner, alone
        if self._counters is not None:
            self._counters = self._counters.replace("{job}", os.environ.get("SLURM_JOB_ID", "0"))
        self._every_s: float = part["every_s"]
        self._counts: Optional[Any] = None
        self._asked_at: Optional[float] = None
        self._before: dict[str, tuple[int, int]] = {}
        self._at: Optional[float] = None
        self._told: dict[str, dict[str, Any]] = {}
        self._held = threading.Lock()  # while it is counted, or told of
        self._last_at = 0.0

    def begin(self) -> None:
        """Take what is there before ranks are."""
        try:
            self._counts = counts_of(self._counters, self._owner, self._alone)
        except OSError:  # said at the first look
            self._counts = None

    def look(self) -> EgressLook:
        """Look once.

        Raises:
            OSError: nothing can be counted.
        """
        counts = self._count()
        now, elapsed_s = monotonic(), 0.0
        if self._at is not None:
            elapsed_s = now - self._at
        self._at = now
        traffic: Mapping[str, DestinationTraffic] = counts.by_address
        self._ask(traffic, now)
        with self._held:
            return EgressLook(unix_s(), counts.method.name, self._rates(traffic, elapsed_s), self._news(traffic))

    def last_news(self) -> dict[str, dict[str, Any]]:
        """Count once more, from the loop: return what is new since the last look; nothing where that cannot be had at once."""
        if self._counts is None or monotonic() - self._last_at < _LAST_S or not self._held.acquire(timeout=_LAST_S):
            return {}
        try:
            self._counts.look()
            self._last_at = monotonic()
            return self._news(self._counts.by_address, asked=False)
        except (
            OSError,
            ValueError,
            TypeError,
            KeyError,
            AttributeError,
        ):  # as in `_count`, which goes another way next time
            return {}
        finally:
            self._held.release()

    def _count(self) -> Any:
        """Count until the next look is near, and return the counts: short connections are seen by those who look often, as long as that costs little."""
        until = monotonic() + self._every_s - _REST_S
        while True:
            began_s = time.thread_time()
            if self._counts is None:
                self._counts = counts_of(self._counters, self._owner, self._alone)
            with self._held:
                try:
                    self._counts.look()
                except (OSError, ValueError, TypeError, KeyError, AttributeError):
                    before, self._counts = self._counts, counts_of(None, self._owner, self._alone)
                    before.close()
                    self._counts.by_address.update(before.by_address)  # what the site's command told until it ended
                    self._counts.look()
            pause_s = max(_OFTEN_S, (time.thread_time() - began_s) / _MOST_COST)
            if monotonic() + pause_s > until:
                return self._counts
            time.sleep(pause_s)

    def close(self) -> None:
        """Let go of what it counts with."""
        if self._counts is not None:
            self._counts.close()

    def _ask(self, traffic: Mapping[str, DestinationTraffic], now: float) -> None:
        """Ask for the addresses of listed hosts, where something went to who is not listed."""
        due = self._asked_at is None or now - self._asked_at > _ASK_AGAIN_S
        if self._classes.names_hosts and due and any(self._classes.of(one).kind == REST for one in traffic):
            self._asked_at = now
            self._classes.ask()

    def _rates(self, traffic: Mapping[str, DestinationTraffic], elapsed_s: float) -> list[float]:
        sums = {kind: [0.0, 0.0, 0.0] for kind in CLASSES}
        for address, one in traffic.items():
            sent, received = self._before.get(address, (0, 0))
            of_class = sums[self._classes.of(address).kind]
            of_class[0] += max(0, one.sent - sent)
            of_class[1] += max(0, one.received - received)
            of_class[2] += one.open
            self._before[address] = one.sent, one.received
        rates: list[float] = []
        for sent_now, received_now, connections in sums.values():
            rates += [sent_now / elapsed_s, received_now / elapsed_s] if elapsed_s else [float("nan")] * 2
            rates.append(connections)
        return rates

    def _news(self, traffic: Mapping[str, DestinationTraffic], asked: bool = True) -> dict[str, dict[str, Any]]:
        """Return what is new; where nobody has `asked` for the addresses of listed hosts, nothing of those that may be one."""
        about = {NODE_DEVICE: node_facts(self._counts)}
        most = sorted(traffic, key=lambda address: -traffic[address].sent - traffic[address].received)
        more = DestinationTraffic()
        for place, address in enumerate(most):
            one, known = traffic[address], self._classes.of(address)
            if known.kind == REST and not asked and self._classes.names_hosts and address not in self._told:
                continue
            if place < _MOST_TOLD:
                about[address] = told_of(one, known.kind, known.name)
            elif known.kind == REST:
                more.sent, more.received = more.sent + one.sent, more.received + one.received
                more.connections += one.connections
        if more.sent or more.received:
            about[UNTOLD] = told_of(more, REST, "")
        news = {key: facts for key, facts in about.items() if self._told.get(key) != facts}
        self._told.update(news)
        return news


def node_facts(counts: Any) -> dict[str, Any]:
    """Return what holds for all that a node has counted."""
    return {
        "method": counts.method.name,
        "precision": counts.method.precision,
        "unclaimed_sent_bytes": counts.unclaimed_sent,
        "remark": counts.remark,
    }


def told_of(traffic: DestinationTraffic, kind: str, name: str) -> dict[str, Any]:
    """Return what is told of one destination."""
    return {
        "class": kind,
        "name": name,
        "sent_bytes": traffic.sent,
        "received_bytes": traffic.received,
        "connections": traffic.connections,
    }
