"""Beside the lead of a run: what all its nodes have sent to destinations that nobody listed, judged each second."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Mapping, NamedTuple, Optional

from cordee.control.supervisor.decisions.nodes import Node
from cordee.control.supervisor.decisions.outcomes import AttemptOutcome
from cordee.control.supervisor.decisions.restart import Failure
from cordee.control.supervisor.decisions.vocabulary import AskToStop, HangFound
from cordee.control.supervisor.watchers import RunWatcher, WatchedRun
from cordee.core.clock import monotonic, unix_s
from cordee.core.errors import RunFolderError
from cordee.core.findings import Finding
from cordee.core.units import format_size, utc_text
from cordee.runs.folder import say, write_atomically
from cordee.systems.egress.node.classes import REST
from cordee.systems.egress.node.companion import GROUP, NODE_DEVICE
from cordee.telemetry.node.blocklog import FACTS, decode_json, iter_records
from cordee.wire.messages import Telemetry

SCHEMA = "cordee.egress/1"
_ACCOUNT_EVERY_S = 10.0
_TOLD_AGAIN = 10  # a finding is written again once it is so many times as much
_MOST_NAMED, _MOST_KEPT = 5, 1000
_WHAT = "if it is meant: list it in [egress] allow, or have the operators agree on it; if not: look at what runs"


class _Sent(NamedTuple):
    kind: str
    name: str
    sent: int
    received: int
    connections: int


class EgressJudge(RunWatcher):
    """See RunWatcher. Nodes tell what has gone to each destination since they began; what counts is the sum over all of them."""

    def __init__(self, run: WatchedRun) -> None:
        super().__init__(run)
        self._part: Optional[Mapping[str, Any]] = run.plan.step.systems.get("egress")
        self._sent: dict[tuple[str, str], _Sent] = {}
        self._about: dict[str, Mapping[str, Any]] = {}
        self._changed = False
        self._told_at = 0
        self._stopped: Optional[int] = None
        self._account = None if self._part is None else account_of(self._part, run)
        self._account_due = 0.0
        self._lane = run.lane("cordee-egress-account")

    def telemetry(self, node: Node, message: Telemetry, body: bytes) -> None:
        if self._part is None or not body:
            return
        for kind, record in iter_records(body):
            if kind == FACTS and b'"egress"' in bytes(record):
                told = decode_json(record)
                if told["group"] == GROUP:
                    self._take(node.name, told["devices"])

    def second(self, now: float) -> None:
        if self._part is None:
            return
        if self._changed:
            self._changed = False
            self._judge(self._part, self._part["action"] == "stop")
            if self._account is not None and now >= self._account_due:
                self._account_due = now + _ACCOUNT_EVERY_S
                self._keep_account()

    def close(self) -> None:
        if self._part is None:
            return
        if self._changed:  # what ranks sent in their last second
            self._judge(self._part, stop=False)
        if self._account is not None and self._sent:
            self._keep_account()

    async def finish(self) -> None:
        await self._lane.run(lambda: None)

    def _take(self, node: str, devices: Mapping[str, Mapping[str, Any]]) -> None:
        for address, one in devices.items():
            if address == NODE_DEVICE:
                self._about[node] = one
                continue
            numbers = (one.get(key) for key in ("sent_bytes", "received_bytes", "connections"))
            before = self._sent.get((node, address))
            kind, name = (
                (one.get("class"), one.get("name")) if "class" in one else (before and before[:2]) or (REST, "")
            )
            old = before[2:] if before is not None else (0, 0, 0)
            moved = (now if isinstance(now, int) else was for now, was in zip(numbers, old))
            self._sent[node, address] = _Sent(str(kind), str(one.get("name", name) or ""), *moved)
            self._changed = True

    def _judge(self, part: Mapping[str, Any], stop: bool) -> None:
        rest: dict[str, int] = {}
        nodes: dict[str, int] = {}
        for (node, address), one in self._sent.items():
            if one.kind == REST:
                rest[address] = rest.get(address, 0) + one.sent
                nodes[node] = nodes.get(node, 0) + one.sent
        total = sum(rest.values())
        if total <= part["most"]:
            return
        finding = self._finding(part, total, rest, nodes)
        if total >= max(1, self._told_at) * _TOLD_AGAIN or not self._told_at:
            self._told_at = total
            self.run.journal.append("finding", finding=finding.document())
        if stop:
            self._stop(finding, max(nodes, key=lambda node: nodes[node]))

    def _finding(
        self, part: Mapping[str, Any], total: int, rest: Mapping[str, int], nodes: Mapping[str, int]
    ) -> Finding:
        most = sorted(rest, key=lambda address: -rest[address])[:_MOST_NAMED]
        named = ", ".join(f"{address} ({format_size(rest[address])})" for address in most)
        more = f" and {len(rest) - _MOST_NAMED} more" if len(rest) > _MOST_NAMED else ""
        text = f"the job has sent {format_size(total)} to destinations that nobody listed: {named}{more}"
        methods = sorted({str(about.get("method")) for about in self._about.values()})
        evidence = {
            "nodes": sorted(node for node, sent in nodes.items() if sent)[: _MOST_NAMED * 10],
            "ranks": [],
            "sent_bytes": total,
            "most_bytes": part["most"],
            "destinations": {address: rest[address] for address in most},
            "method": methods,
            "action": part["action"],
        }
        return Finding(
            text, "error" if part["action"] == "stop" else "warn", "egress-volume", next=_WHAT, evidence=evidence
        )

    def _stop(self, finding: Finding, node: str) -> None:
        attempt = self.run.attempt()
        if attempt is None or self._stopped == attempt.number:
            return
        self._stopped = attempt.number
        outcome = AttemptOutcome(
            "failed", Failure("egress", None, node, reason="end", message=finding.text), finding.text
        )
        self.run.happened(HangFound(attempt.number, AskToStop(monotonic(), outcome, 0.0, "")))

    def _keep_account(self) -> None:
        assert self._account is not None
        account = self._account
        sums: dict[str, list[Any]] = {}
        for (_, address), one in self._sent.items():
            of = sums.setdefault(address, [one.kind, one.name, 0, 0, 0])
            of[2:] = [of[2] + one.sent, of[3] + one.received, of[4] + one.connections]
        methods = sorted({str(about.get("method")) for about in self._about.values()})
        self._lane.submit(lambda: account.keep(sums, methods))


class RunAccount:
    """What one run leaves in the site's account: one file for each day (UTC), replaced while the run goes on.

    Args:
        folder: the account.
        about: the run, its user, its cluster.
    """

    def __init__(self, folder: str, about: Mapping[str, Any]) -> None:
        self._folder, self._about = Path(folder), dict(about)
        self._until: dict[str, tuple[int, int, int]] = {}  # sums when the day began
        self._last: dict[str, tuple[int, int, int]] = {}
        self._day = ""
        self._failed = False

    def keep(self, sums: Mapping[str, list[Any]], methods: list[str]) -> None:
        """Write what has gone to each destination since the day began."""
        day = utc_text(unix_s())[:10]
        if day != self._day:
            self._day, self._until = day, dict(self._last)
        self._last = {address: (one[2], one[3], one[4]) for address, one in sums.items()}
        found: dict[str, Any] = {}
        for address in sorted(sums, key=lambda one: -sums[one][2])[:_MOST_KEPT]:
            before = self._until.get(address, (0, 0, 0))
            sent, received, connections = (max(0, now - was) for now, was in zip(self._last[address], before))
            if sent or received:
                found[address] = {
                    "class": sums[address][0],
                    "name": sums[address][1],
                    "sent_bytes": sent,
                    "received_bytes": received,
                    "connections": connections,
                }
        document = {"schema": SCHEMA, **self._about, "day": day, "methods": methods, "destinations": found}
        try:
            place = self._folder / day
            if not place.is_dir():
                place.mkdir(exist_ok=True)
                os.chmod(place, self._folder.stat().st_mode & 0o7777)
            write_atomically(place / f"{self._about['run']}.json", json.dumps(document), 0o644)
        except (OSError, RunFolderError) as error:
            if not self._failed:
                self._failed = True
                say(f"cordee supervisor: the account of what was sent cannot be written: {self._folder}: {error}")


def account_of(part: Mapping[str, Any], run: WatchedRun) -> Optional[RunAccount]:
    """Return the run's account, None where the site keeps none."""
    if not part["account"]:
        return None
    job = os.environ.get("SLURM_JOB_ID", "")
    return RunAccount(
        part["account"], {"run": run.plan.run, "uid": os.getuid(), "cluster": part["cluster"], "job": job}
    )
