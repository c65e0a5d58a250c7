"""Beside the lead of a run: judges its rules while it goes on, and writes what they say as findings."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from typing import Any, Deque, Mapping, Optional

from cordee.control.supervisor.closing_findings import document_side
from cordee.control.supervisor.decisions.nodes import Node
from cordee.control.supervisor.watchers import RunWatcher, WatchedRun
from cordee.core.backends import backend_on_node
from cordee.core.clock import monotonic
from cordee.core.findings import Finding
from cordee.runs.journal_follower import JournalFollower
from cordee.systems.rules.node.judge import MARK, MOST_PLACES, RuleJudge, RuleMatch, RulePlace, rule_findings
from cordee.systems.rules.node.windows import MetricWindows
from cordee.wire.messages import Telemetry

_COUNTER = "cordee.systems.rules.counted"
_COUNT_EVERY_S, _COUNT_S = 60.0, 30.0
_TOGETHER_S = 3.0  # agents tell of the same window one after the other
_MOST_FINDINGS = 50
_MOST_UNHEARD = 100_000


class RuleWatch(RunWatcher):
    """See RunWatcher. Events and metrics are judged here; what counts over runs is asked of the document side, where a finding names a node."""

    def __init__(self, run: WatchedRun) -> None:
        super().__init__(run)
        part: dict[str, Any] = run.plan.step.systems.get("rules", {})
        rules: list[Mapping[str, Any]] = list(part.get("rules", ()))
        self._judge = RuleJudge(rules)
        self._windows = MetricWindows(self._judge.windows)
        self._counts = (
            any("runs" in rule["when"] for rule in rules)
            or backend_on_node(run.plan.backend, run.plan.backend_part).abilities.several_machines
        )
        self._judges = bool(rules)
        self._told: dict[str, set[RulePlace]] = {}
        self._findings: dict[str, int] = {}
        self._matches: list[RuleMatch] = []
        self._unheard: Deque[Mapping[str, Any]] = deque(maxlen=_MOST_UNHEARD)
        self._said: set[str] = set()
        self._to_count, self._count_at = False, 0.0
        self._counting: Optional[asyncio.Task[None]] = None
        self._since = monotonic()
        self._before: Optional[Any] = None
        if self._judges:
            self._before = run.lane("cordee-rules").submit(lambda: self._read_before())

    # What is heard

    def event(self, event: Mapping[str, Any]) -> None:
        if event["event"] == "finding":
            self._look_whom_it_names(event)
        if self._before is not None:
            self._unheard.append(event)
        elif self._judges:
            self._matches += self._judge.event(event)

    def telemetry(self, node: Node, message: Telemetry, body: bytes) -> None:
        if self._judge.windows and body:
            for rule, place, number, value in self._windows.take(body):
                self._take(self._judge.window(rule, place, number, value))

    def second(self, now: float) -> None:
        if self._before is not None and self._before.done():
            before, self._before = self._before, None
            self._matches += before.result()
            while self._unheard:
                self.event(self._unheard.popleft())
        if self._before is None and (now - self._since >= _TOGETHER_S or not self._matches):
            self._tell()
            self._since = now
        if self._to_count and self._counting is None and now >= self._count_at:
            self._to_count, self._count_at = False, now + _COUNT_EVERY_S
            self._counting = asyncio.ensure_future(self._count())

    def close(self) -> None:
        for rule, place, number, value in self._windows.rest():
            self._take(self._judge.window(rule, place, number, value))
        self.second(self._since + _TOGETHER_S)

    async def finish(self) -> None:
        if self._before is not None:
            await asyncio.wait({asyncio.wrap_future(self._before)})
            self.second(self._since + _TOGETHER_S)
        if self._counting is not None:
            await self._counting
        if self._to_count:
            await self._count()

    # What is said

    def _take(self, match: Optional[RuleMatch]) -> None:
        if match is not None:
            self._matches.append(match)

    def _tell(self) -> None:
        """Write what is new: of each rule one finding for all places that came together."""
        matches, self._matches = self._matches, []
        news: dict[str, list[RuleMatch]] = {}
        for match in matches:
            told = self._told.setdefault(match.rule["id"], set())
            if match.place not in told:
                told.add(match.place)
                news.setdefault(match.rule["id"], []).append(match)
        for rule, found in news.items():
            count = self._findings[rule] = self._findings.get(rule, 0) + 1
            if count <= _MOST_FINDINGS:
                self._write(rule_findings(found[0].rule, found))
            elif count == _MOST_FINDINGS + 1:
                self._say(f"the rule {rule} has held at more than {_MOST_FINDINGS} times: what follows is not told")
        if self._judge.untracked or self._windows.full:
            self._say("rules look at more places than are remembered: not all are judged")

    def _say(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            self._write(Finding(text, "warn", "rules-capped", next="narrow the rule's `when`"))

    def _write(self, finding: Finding) -> None:
        self.run.journal.append("finding", finding=finding.document())

    # What was before this supervisor

    def _read_before(self) -> list[RuleMatch]:
        """Return what holds for the events of earlier supervisors, and remember what they have told."""
        matches: list[RuleMatch] = []
        for event in JournalFollower(self.run.folder, keep=False).stream():
            if event["epoch"] >= self.run.journal.epoch and event["writer"] == self.run.journal.writer:
                continue
            matches += self._judge.event(event)
            for rule, place in told_places(event):
                self._told.setdefault(rule, set()).add(place)
        return matches

    # What counts over runs

    def _look_whom_it_names(self, event: Mapping[str, Any]) -> None:
        finding = event.get("finding")
        evidence = finding.get("evidence") if isinstance(finding, dict) else None
        if self._counts and isinstance(evidence, dict) and evidence.get("nodes") and not evidence.get("runs"):
            self._to_count = True

    async def _count(self) -> None:
        output = await document_side(_COUNTER, str(self.run.folder.root), most_s=_COUNT_S)
        self._counting = None
        try:
            found = [Finding.from_document(one) for one in json.loads(output or b"{}").get("findings", [])]
        except (ValueError, TypeError, AttributeError):
            return
        for finding in found[:MOST_PLACES]:
            self._write(finding)


def told_places(event: Mapping[str, Any]) -> list[tuple[str, RulePlace]]:
    """Return which rules have been told of which places, as a finding of the journal says."""
    finding = event.get("finding")
    evidence = finding.get("evidence") if isinstance(finding, dict) else None
    if not isinstance(evidence, dict) or MARK not in evidence or not isinstance(evidence.get("places"), list):
        return []
    found = []
    for place in evidence["places"]:
        try:
            nodes, ranks, device = place
            found.append((str(evidence[MARK]), RulePlace(tuple(nodes), tuple(ranks), str(device))))
        except (TypeError, ValueError):
            continue
    return found
