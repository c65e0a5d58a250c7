"""Beside the lead of a run: says who is slow, keeps what is seen for `cordee stragglers`, and has others take the place of slow nodes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Mapping, Optional, Union

from cordee.client import megatron
from cordee.control.supervisor.decisions.attempt import Attempt
from cordee.control.supervisor.decisions.nodes import Node
from cordee.control.supervisor.decisions.vocabulary import NodeSuspected
from cordee.control.supervisor.watchers import RunWatcher, WatchedRun
from cordee.core.clock import monotonic, unix_s
from cordee.core.findings import Finding
from cordee.core.stats import peers_of
from cordee.machine.foreign_files import read_regular
from cordee.runs.folder import say, write_atomically
from cordee.systems.explain.node.slow.detector import ROUND_S, SlowDetector, SlowOver, SlowRanks
from cordee.systems.explain.node.slow.links import LinkDetector, SlowConnection
from cordee.systems.explain.node.slow.rounds import DATA, SAVING
from cordee.systems.explain.node.slow.words import (
    SlowContext,
    capped_finding,
    link_finding,
    over_finding,
    slow_finding,
    why,
)
from cordee.wire.messages import NodeFinding, Observe, RanksEnded, RanksStarted, StopAnswers, Telemetry

# In the run's folder, below `control`: who is slow now, and whether anybody is looked for, which the next supervisor goes by.
STANDING = "stragglers.json"
_MOST_FINDINGS, _MOST_RANK = 200, 1_000_000
_STANDING_BYTES = 64 << 20
_MOST_PROOF, _MOST_SPIKES = 8, 1000
# What a rank does by itself is not mended by another node.
_OF_THE_PROGRAM = (DATA, SAVING)


class SlowWatch(RunWatcher):
    """See RunWatcher; nothing is looked for where `[observe]` says so, until somebody asks for it."""

    def __init__(self, run: WatchedRun) -> None:
        super().__init__(run)
        wanted: dict[str, Any] = run.plan.step.systems.get("explain", {})
        self._planned = bool(wanted.get("stragglers", True))
        self._on = self._planned if (switched := _switched(run.folder.control)) is None else switched
        self._replaces = wanted.get("stragglers_action", "report") == "replace"
        self._slow, self._links = SlowDetector(), LinkDetector()
        self._settings = megatron.settings_of_command(run.plan.step.tasks.argv)
        self._attempt = 0
        self._ranks: dict[int, str] = {}
        self._unplaced: dict[int, str] = {}
        self._said: dict[int, dict[str, int]] = {}
        self._regroup = False
        self._hardware: dict[str, tuple[NodeFinding, ...]] = {}
        self._heard: set[int] = set()
        self._lane = run.lane("cordee-stragglers")
        self._due = 0.0
        self._written: Any = None
        self._told = 0
        self._suspected: dict[str, str] = {}

    # What agents say

    def telemetry(self, node: Node, message: Telemetry, body: bytes) -> None:
        if message.findings:
            self._hardware[node.name] = message.findings
        for told in message.places:
            if told.attempt == self._attempt and 0 <= told.rank < _MOST_RANK:
                place = {str(name): index for name, index in told.place.items() if type(index) is int}
                self._regroup = self._regroup or self._said.get(told.rank) != place
                self._said[told.rank] = place
        if not self._on or not self._attempt:
            return
        now = monotonic()
        if message.links:
            self._links.told(node.name, message.links)
        if message.digests:
            for one in message.digests:
                if self._ranks.get(one.rank) != node.name and 0 <= one.rank < _MOST_RANK:
                    self._unplaced[one.rank] = node.name
                self._heard.add(one.rank)
            self._slow.told(message.digests, now)

    def rank_news(self, node: Node, message: Union[RanksStarted, RanksEnded, StopAnswers]) -> None:
        self._follow()
        if isinstance(message, RanksStarted) and message.attempt == self._attempt and self._on != self._planned:
            self.run.order(node, Observe(self._attempt, self._on))

    def requested(self, request: dict[str, Any]) -> None:
        if request.get("request") != "stragglers" or not isinstance(request.get("on"), bool):
            return
        self._on = request["on"]
        attempt = self.run.attempt()
        if attempt is not None:
            for node in attempt.nodes:
                self.run.order(node, Observe(attempt.number, self._on))
            self._begin(self._ranks, monotonic())
        self._write_standing(monotonic())

    # What is seen

    def second(self, now: float) -> None:
        self._follow()
        if self._unplaced or self._regroup:  # ranks that a launcher of the script's own has started; places in the mesh
            placed, self._unplaced, self._regroup = {**self._ranks, **self._unplaced}, {}, False
            self._begin(placed, now)
        if self._on and self._attempt:
            for seen in self._slow.look(now):
                self._tell(seen, now)
            slow = {one.node for one in self._slow.standing()}
            excused = slow | {self.run.nodes[name].address for name in slow if name in self.run.nodes}
            for link in self._links.look(now, excused):
                self._tell_link(link, now)
        if now >= self._due:
            self._due = now + ROUND_S
            self._write_standing(now)

    def _follow(self) -> None:
        """Look whether another attempt has begun."""
        attempt = self.run.attempt()
        if attempt is None or attempt.number == self._attempt:
            return
        self._attempt, self._said = attempt.number, {}
        self._begin(_nodes_of(attempt), monotonic())

    def _begin(self, ranks: Mapping[int, str], now: float) -> None:
        self._ranks, self._heard = dict(ranks), set()
        self._slow.begin(self._ranks, peers_of(self._places()), now)
        self._links.begin(self._ranks.values(), now)

    def _places(self) -> dict[int, dict[str, int]]:
        """Return the coordinates of the ranks in the training's parallelism: what they say themselves, else what their command says."""
        found: dict[int, dict[str, int]] = {}
        world = max(self._ranks, default=-1) + 1
        for rank in self._ranks if self._settings else ():
            try:
                place = megatron.coordinates(self._settings, rank, world)
            except ValueError:
                break
            found[rank] = {name: index for name, (index, _) in place.items()}
        found.update({rank: place for rank, place in self._said.items() if rank in self._ranks and place})
        return found

    # What is told

    def _tell(self, seen: Union[SlowRanks, SlowOver], now: float) -> None:
        if isinstance(seen, SlowOver):
            self._write(over_finding(seen, SlowContext(self._attempt, None)))
            if not any(one.node == seen.node for one in self._slow.standing()):
                self._suspect(seen.node, "")
            return
        replaced = self._replaces and seen.cause.kind not in _OF_THE_PROGRAM
        finding = slow_finding(seen, self._about(seen.node, seen.since, now, replaced))
        self._write(finding)
        if replaced:
            who = "all its ranks are" if seen.whole_node else f"rank {seen.ranks[0]} is"
            self._suspect(seen.node, f"{who} {100 * seen.slower:.0f} % slower than peers: {why(seen.cause)}")

    def _tell_link(self, link: SlowConnection, now: float) -> None:
        named = {node.address: node.name for node in self.run.nodes.values()}
        peer = named.get(link.address, link.address)
        self._write(link_finding(link, peer, self._about(link.node, link.since, now, self._replaces)))
        if self._replaces:
            self._suspect(link.node, f"its connection to {peer} is slow")

    def _about(self, node: str, since: float, now: float, replaced: bool) -> SlowContext:
        return SlowContext(self._attempt, unix_s() - (now - since), self._proof(node), replaced)

    def _proof(self, node: str) -> list[dict[str, str]]:
        """Return what its hardware is known for."""
        documents = [found.finding for found in self._hardware.get(node, ())]
        return [
            {"rule": str(one.get("rule", "")), "text": str(one.get("text", ""))}
            for one in documents
            if str(one.get("rule", "")).startswith("hardware-")
        ][:_MOST_PROOF]

    def _suspect(self, node: str, reason: str) -> None:
        if not self._replaces or node not in self.run.nodes or self._suspected.get(node, "") == reason:
            return
        if reason and self._suspected.get(node):
            return  # it is already
        self._suspected[node] = reason
        self.run.suspect(NodeSuspected(node, reason))

    def _write(self, finding: Finding) -> None:
        self._told += 1
        if self._told == _MOST_FINDINGS:
            finding = capped_finding(_MOST_FINDINGS)
        if self._told <= _MOST_FINDINGS:
            self.run.journal.append("finding", finding=finding.document())

    def _write_standing(self, now: float) -> None:
        """Write who is slow now, where that has changed."""
        standing = self._standing(now)
        if standing == self._written or not (self._attempt or self._on != self._planned):
            return
        self._written = standing
        text = json.dumps({**standing, "at": unix_s()})
        path = self.run.folder.control / STANDING
        self._lane.submit(lambda: write_atomically(path, text, below=self.run.folder.root)).add_done_callback(_complain)

    def _standing(self, now: float) -> dict[str, Any]:
        spikes = sorted(self._slow.spikes.items(), key=lambda pair: -pair[1])[:_MOST_SPIKES]
        return {
            "schema": "cordee.stragglers/1",
            "on": self._on,
            "action": "replace" if self._replaces else "report",
            "attempt": self._attempt,
            "ranks": len(self._ranks),
            "heard": len(self._heard),
            "slow": [
                {
                    "rank": one.rank,
                    "node": one.node,
                    "since": round(unix_s() - (now - one.since)),
                    "share": round(one.share, 3),
                    "peers_share": round(one.peers_share, 3),
                    "slower": round(one.slower, 3),
                    "cause": one.cause.kind,
                    "how": one.cause.how or None,
                    "why": why(one.cause),
                    "proof": self._proof(one.node),
                }
                for one in self._slow.standing()
            ],
            "spikes": {str(rank): count for rank, count in spikes},
        }


def _nodes_of(attempt: Attempt) -> dict[int, str]:
    """Return the node of each rank."""
    per_node = attempt.ranks_per_node
    return {at * per_node + local: node.name for at, node in enumerate(attempt.nodes) for local in range(per_node)}


def _switched(control: Path) -> Optional[bool]:
    """Return whether somebody is looked for, as the supervisor before had it; None where there was none."""
    try:
        told = json.loads(read_regular(control / STANDING, limit_bytes=_STANDING_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
    on = told.get("on") if isinstance(told, dict) else None
    return on if isinstance(on, bool) else None


def _complain(written: Any) -> None:
    error: Optional[BaseException] = written.exception()
    if error is not None:
        say(f"cordee supervisor: what is known of stragglers could not be written: {error}")
