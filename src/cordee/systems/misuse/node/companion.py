"""Beside the ranks of a node: signs of misuse, told as findings of the run, for operators. Nothing is ended."""

from __future__ import annotations

import os
from typing import Any, Mapping, Optional

from cordee.control.agent.companions import Companion, CompanionHost
from cordee.control.agent.orders import Handlers
from cordee.core.clock import monotonic
from cordee.core.findings import Finding
from cordee.machine.processes.tree import tree_of
from cordee.machine.tcp_sockets import TcpConnection, TcpConnections
from cordee.runs.folder import say
from cordee.runs.lane import Lane, RepeatedLook
from cordee.runs.plan import RunPlan
from cordee.systems.misuse.node.signs import WORK, MisuseSigns, Signs, told_signs
from cordee.wire.messages import NodeFinding

_EVERY_S = 10.0
_WHAT = "operators: look at the processes and ask whose job it is; a job that computes without reading, writing and steps looks the same"


class MisuseWatch(Companion):
    """Looks every ten seconds, in a thread; see Companion. It tells once for each set of signs, and graver once a name is among them."""

    def __init__(self, plan: RunPlan, node: str) -> None:
        super().__init__(plan, node)
        self._part: Optional[Mapping[str, Any]] = plan.step.systems.get("misuse")
        self._host: Optional[CompanionHost] = None
        self._found: dict[str, NodeFinding] = {}
        self._due, self._failed_once = 0.0, False
        self._roots: tuple[int, ...] = ()
        self._steps = False
        self._lane = Lane("cordee-misuse")

    def attach(self, host: CompanionHost) -> Handlers:
        if self._part is not None:
            self._host = host
            self._signs = MisuseSigns(self._part["names"])
            self._looking = RepeatedLook(self._lane, self._look, self._tell, self._failed)
        return {}

    def look(self, now: float) -> None:
        if self._host is None or now < self._due:
            return
        self._due = now + _EVERY_S
        self._roots, self._steps = tuple(self._host.pids().values()), bool(self._host.steps())
        if self._roots:
            self._looking.begin()

    def findings(self) -> tuple[NodeFinding, ...]:
        return tuple(self._found.values())

    def _look(self) -> Optional[Signs]:
        pids = {pid for root in self._roots for pid in tree_of(root)}
        return self._signs.look(pids, monotonic(), self._steps, _outside(pids))

    def _tell(self, signs: Optional[Signs]) -> None:
        if signs is None:
            return
        rule = "misuse-name" if signs.certain else "misuse-mining" if len(signs.words) > WORK else "misuse-work"
        severity = "info" if rule == "misuse-work" else "warn"
        text = f"signs of misuse: {', '.join(signs.words)}"
        finding = Finding(text, severity, rule, next=_WHAT, evidence=dict(told_signs(signs)))
        self._found[rule] = NodeFinding(rule, len(signs.words), False, finding.document())

    def _failed(self, error: BaseException) -> None:
        if not self._failed_once:
            self._failed_once = True
            say(f"cordee agent {self.node}: signs of misuse are not looked for: {type(error).__name__}: {error}")


def _outside(pids: set[int]) -> list[TcpConnection]:
    """Return the connections of processes to public addresses; none where the kernel does not tell."""
    import ipaddress

    inodes = set()
    for pid in pids:
        try:
            folder = f"/proc/{pid}/fd"
            inodes |= {
                target for name in os.listdir(folder) if (target := os.readlink(f"{folder}/{name}"))[:7] == "socket:"
            }
        except OSError:
            continue
    if not inodes:
        return []
    try:
        connections = TcpConnections()
        living = connections.living()
        connections.close()
    except OSError:
        return []
    return [one for one in living if f"socket:[{one.inode}]" in inodes and ipaddress.ip_address(one.remote).is_global]
