"""Leading a vetting: what each node is asked alone, what nodes are asked together, and the verdict."""

from __future__ import annotations

import asyncio
import os
from functools import partial
from typing import TYPE_CHECKING, Any, Optional

from cordee.backends.slurm.node.topology import leaves_here
from cordee.core.clock import monotonic
from cordee.core.errors import CordeeError
from cordee.core.units import utc_text
from cordee.systems.vetting.node.judge import clocks
from cordee.systems.vetting.node.judge.node_link import VettedNode
from cordee.systems.vetting.node.judge.unknowns import busy_nodes
from cordee.systems.vetting.node.judge.verdict import decide

if TYPE_CHECKING:
    from cordee.systems.vetting.node.judge.pairs import PairOutcome

SCHEMA = "cordee.vetting/1"
_PAIRS_SHARE = 0.5
_PAIR_SLACK_S = 10.0
_PAIRS = "pair.bandwidth"
_CONFUSION_RATIO = 0.3
_VERDICT_S = 0.5
_ANSWER_S = 1.0
_CLOCK = "host.clock"
_MANY = 500


def plain_protocol(deadline_s: float) -> dict[str, Any]:
    """Return the protocol of a vetting that asks for nothing beyond what its caller adds."""
    return {
        "schema": "cordee.protocol/1",
        "name": "host",
        "digest": "",
        "deadline_s": deadline_s,
        "checks": [],
        "pairs": None,
        "classes": {},
        "python": None,
        "requirements": [],
        "policy": {},
        "rules": [],
        "history": None,
        "baseline": {},
        "switches": {},
    }


class Conductor:
    """Leads one vetting by one protocol; does no I/O but through its members and the history.

    Args:
        protocol: resolved (`cordee.protocol/1`).
        identity: who is vetted for whom: `run`, `job`, `cluster`, `user`, as far as known.
        min_nodes: fewest nodes that can go on; None: whatever the protocol's policy leaves.

    Attributes:
        checks_s: seconds that one node has for its own checks.
        pairs_s: seconds for what nodes do together.
    """

    def __init__(self, protocol: dict[str, Any], identity: dict[str, Any], min_nodes: Optional[int] = None) -> None:
        self.protocol = protocol
        self._identity = identity
        self._min_nodes = min_nodes
        self._began = monotonic()
        deadline_s, pairs = float(protocol["deadline_s"]), protocol["pairs"]
        self.pairs_s = 0.0
        if pairs is not None:
            rounds = pairs["rounds"] + pairs["retests"]
            longest_s = pairs.get("deadline_s") or rounds * (pairs["seconds"] + _PAIR_SLACK_S)
            self.pairs_s = min(_PAIRS_SHARE * deadline_s, longest_s)
        self.checks_s = deadline_s - self.pairs_s - _VERDICT_S

    async def vet_node(
        self,
        member: VettedNode,
        *,
        first: Optional[list[dict[str, Any]]] = None,
        left_s: Optional[float] = None,
        **request: Any,
    ) -> list[dict[str, Any]]:
        """Have one node run its own checks and return their results; never raises.

        Args:
            member: the node.
            first: checks that the caller asks for on top.
            left_s: seconds until its answer must be here, at most `checks_s`.
            request: what else the request may hold (`root`, `env`).
        """
        taken = {entry["name"] for entry in self.protocol["checks"]}
        wanted = [_renamed(entry, taken) for entry in first or []] + self.protocol["checks"]
        if not wanted:
            return []
        left_s = self.checks_s if left_s is None else min(left_s, self.checks_s)
        more = {**{key: self.protocol[key] for key in ("classes", "python", "requirements")}, **request}
        return await member.check(wanted, max(0.1, left_s - _ANSWER_S), patience_s=_ANSWER_S, **more)

    async def conclude(
        self,
        members: dict[str, VettedNode],
        reports: dict[str, Optional[list[dict[str, Any]]]],
        left_s: Optional[float] = None,
    ) -> dict[str, Any]:
        """Compare the nodes, let them measure each other, and return the allocation document.

        Args:
            members: the nodes that are there.
            reports: results of all nodes that should be there; None: it never answered.
            left_s: seconds for all this, at most `pairs_s`.
        """
        await self._compare_clocks(members, reports)
        pairs = await self._measure_pairs(members, reports, self.pairs_s if left_s is None else left_s)
        document = {
            "schema": SCHEMA,
            "protocol": self.protocol["name"],
            "digest": self.protocol["digest"],
            **{key: self._identity.get(key) for key in ("run", "job", "cluster", "user")},
            "at": utc_text(),
            "seconds": round(monotonic() - self._began, 3),
            **await self._decide(reports, pairs),
        }
        if self.protocol["history"] is not None:
            from cordee.systems.vetting.node.judge.record import write

            await asyncio.get_running_loop().run_in_executor(None, write, document, self.protocol["history"])
        return document

    async def _decide(
        self, reports: dict[str, Optional[list[dict[str, Any]]]], pairs: Optional[PairOutcome]
    ) -> dict[str, Any]:
        """Decide; for thousands of nodes in a thread, while the event loop goes on."""
        least = self.protocol["policy"].get("min_nodes") if self._min_nodes is None else self._min_nodes
        work = partial(decide, self.protocol, reports, pairs, min_nodes=least)
        if len(reports) < _MANY:
            return work()
        return await asyncio.get_running_loop().run_in_executor(None, work)

    async def _compare_clocks(
        self, members: dict[str, VettedNode], reports: dict[str, Optional[list[dict[str, Any]]]]
    ) -> None:
        for entry in self.protocol["checks"]:
            if entry["check"] == _CLOCK:
                offsets = await clocks.offsets(members)
                clocks.judge(entry, offsets, reports)

    async def _measure_pairs(
        self,
        members: dict[str, VettedNode],
        reports: dict[str, Optional[list[dict[str, Any]]]],
        left_s: float,
    ) -> Optional[PairOutcome]:
        settings = self.protocol["pairs"]
        there = {name: member for name, member in members.items() if reports.get(name) is not None}
        if settings is None or not there:
            return None
        from cordee.systems.vetting.node.judge.pairing import run_pairs

        return await run_pairs(
            there,
            settings,
            self.protocol["switches"] or await _switches(),
            self.protocol["baseline"].get(_PAIRS),
            left_s,
            confusion_ratio=self.protocol["policy"].get("confusion_ratio", _CONFUSION_RATIO),
            busy=busy_nodes(reports),
            python=self.protocol["python"],
        )


def _renamed(entry: dict[str, Any], taken: set[str]) -> dict[str, Any]:
    """Return a check that the job asks for, under a name that the protocol does not use."""
    name = entry.get("name") or entry["check"]
    return {**entry, "name": f"{name} (job)"} if name in taken else entry


async def _switches() -> dict[str, str]:
    """Return the nodes below each leaf switch, as Slurm tells; empty where there is no Slurm or no topology."""
    if "SLURM_JOB_ID" not in os.environ:
        return {}
    try:
        return await asyncio.get_running_loop().run_in_executor(None, leaves_here)
    except CordeeError:
        return {}
