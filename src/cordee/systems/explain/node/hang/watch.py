"""Beside the lead of a run: says that it hangs, has collected what shows why, and does what `[hang]` wants then."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Optional, Union

from cordee.control.supervisor.closing_findings import AT_ONCE, document_side
from cordee.control.supervisor.decisions.attempt import Attempt
from cordee.control.supervisor.decisions.nodes import Node
from cordee.control.supervisor.decisions.outcomes import AttemptOutcome
from cordee.control.supervisor.decisions.restart import Failure
from cordee.control.supervisor.decisions.vocabulary import AskToStop, HangFound
from cordee.control.supervisor.watchers import RunWatcher, WatchedRun
from cordee.core.clock import monotonic, unix_s
from cordee.core.findings import Finding
from cordee.runs.folder import say
from cordee.systems.explain.node.hang.detector import HangBegan, HangDetector, HangOver, HangPolicy
from cordee.systems.explain.node.hang.files import HangFiles
from cordee.systems.explain.node.patience import MOST_S, patience_s, times_longer
from cordee.wire.messages import Gather, Gathered, RanksEnded, RanksStarted, StopAnswers, Telemetry

# On idle machines; see `cordee.systems.explain.node.patience`.
_COLLECT_S, _MORE_S, _JUDGE_S = 8.0, 3.0, 20.0
_OTHERS_S = 1.0  # dumps that are late come together
_ASKED_S = 40.0  # as long as `cordee stacks` waits
_MOST_WAITING_BYTES = 64 << 20
_MOST_HANGS, _MOST_QUESTIONS, _MOST_NOTES = 20, 100, 100
_WRITE_S = 0.002
_UNKNOWN, _MAY_BE_MEANT = "hang-unknown", "hang-quiet"
_REPORT = "cordee.systems.explain.hang_report"


class _Collecting:
    """What is being collected of one hang."""

    def __init__(self, began: HangBegan, attempt: Attempt, files: HangFiles, now: float, asked: bool) -> None:
        self.began, self.attempt, self.files, self.asked = began, attempt, files, asked
        self.node_of = {rank: node for node, ranks in _ranks_of(attempt).items() for rank in ranks}
        self.declared_at, self.since = unix_s(), unix_s() - (now - began.since)
        self.open = {node.name for node in attempt.nodes}
        self.nodes, self.times = frozenset(self.open), times_longer()
        self.news, self.late = asyncio.Event(), asyncio.Event()
        self.described = False
        self.notes: list[str] = []
        self.waiting_bytes = 0

    async def told(self) -> None:
        """Wait until all nodes have told all, but no longer than the busiest of them needs."""
        began = asyncio.get_running_loop().time()
        while self.open:
            left_s = began + patience_s(_COLLECT_S + _MORE_S, self.times) - asyncio.get_running_loop().time()
            if left_s <= 0 or not await _at_most(self.news.wait(), left_s):
                return
            self.news.clear()

    def note(self, text: str) -> None:
        """Remember what could not be had."""
        if len(self.notes) < _MOST_NOTES:
            self.notes.append(text)

    def written(self, count: int) -> None:
        """So many bytes wait for the disk no more."""
        self.waiting_bytes -= count


class HangWatch(RunWatcher):
    """See RunWatcher; nothing is watched where `[hang]` says so."""

    def __init__(self, run: WatchedRun) -> None:
        super().__init__(run)
        wanted: dict[str, Any] = run.plan.step.systems.get("explain", {})
        self._wanted = bool(wanted.get("enabled", True))
        self._policy = HangPolicy(wanted.get("after_s"), wanted.get("action", "report"))
        self._detector = HangDetector(self._policy, run.plan.sampling.interval_s)
        self._attempt = 0
        self._ranks: dict[str, range] = {}
        self._lane = run.lane("cordee-hangs")
        self._collecting: Optional[_Collecting] = None
        self._task: Optional[asyncio.Task[None]] = None
        self._judging_again: set[asyncio.Task[bool]] = set()
        self._declared: Optional[HangBegan] = None
        self._hangs = self._questions = self._gathers = 0
        self._asked_until = 0.0

    # What agents say

    def telemetry(self, node: Node, message: Telemetry, body: bytes) -> None:
        ranks = self._ranks.get(node.name)
        if ranks is not None and message.stands is not None:
            self._detector.told(ranks, message.stands, monotonic())

    def rank_news(self, node: Node, message: Union[RanksStarted, RanksEnded, StopAnswers]) -> None:
        self._follow()
        if message.attempt != self._attempt:
            return
        if isinstance(message, RanksStarted):
            self._detector.started((one.rank for one in message.started), monotonic())
        elif isinstance(message, RanksEnded):
            for one in message.ended:
                self._detector.has_ended(one.rank, one.code)

    def gathered(self, node: Node, message: Gathered, body: bytes) -> None:
        collecting = self._collecting
        if collecting is None or message.id != _id_of(self._gathers) or node.name not in collecting.nodes:
            return
        if message.times:
            collecting.times = max(collecting.times, message.times)
            collecting.news.set()
            self._lane.submit(lambda: collecting.files.again(node.name))
        elif not message.name:
            if message.text and node.name in collecting.open:
                collecting.note(f"{node.name}: {message.text}")
            collecting.open.discard(node.name)
            collecting.news.set()
        elif collecting.waiting_bytes + len(body) > _MOST_WAITING_BYTES:
            self._lane.submit(lambda: collecting.files.drop(node.name, message.name, "the disk is too slow"))
        else:
            collecting.waiting_bytes += len(body)
            loop = asyncio.get_running_loop()
            work = self._lane.submit(lambda: collecting.files.take(node.name, message.name, body, message.last))
            work.add_done_callback(lambda _: loop.call_soon_threadsafe(collecting.written, len(body)))
            if collecting.described and message.last:
                collecting.note(f"{node.name}: {message.name} came late")
                collecting.late.set()

    # What is seen

    def second(self, now: float) -> None:
        if not self._wanted:
            return
        self._follow()
        seen = self._detector.look(now)
        if isinstance(seen, HangBegan):
            self._declared = seen
        elif isinstance(seen, HangOver) and self._hangs:
            text = f"ranks went on again after they had stood for {seen.stood_s:.0f} s"
            self._write(Finding(text, "info", "hang-over", next="set [hang] after higher if this is as it should be"))
        attempt = self.run.attempt()
        if self._declared is not None and self._task is None and attempt is not None:
            declared, self._declared = self._declared, None
            if self._detector.hangs:
                self._declare(declared, attempt, now)
        self._answer(now)

    def requested(self, request: dict[str, Any]) -> None:
        if request.get("request") == "stacks" and self._wanted:
            self._asked_until = monotonic() + _ASKED_S
            self._answer(monotonic())

    def close(self) -> None:
        for task in (self._task, *self._judging_again):
            if task is not None:
                task.cancel()

    def _follow(self) -> None:
        """Look whether another attempt has begun."""
        attempt = self.run.attempt()
        if attempt is None or attempt.number == self._attempt:
            return
        self._attempt = attempt.number
        self._ranks = _ranks_of(attempt)
        self._detector.begin(len(attempt.nodes) * attempt.ranks_per_node)

    # What is done

    def _answer(self, now: float) -> None:
        """Collect what somebody has asked for: at once, or when what is being collected is there."""
        attempt = self.run.attempt()
        if now > self._asked_until or self._task is not None or attempt is None:
            return
        ranks = self._detector.now()
        if not ranks:
            return
        self._asked_until = 0.0
        if self._questions < _MOST_QUESTIONS:
            self._questions += 1
            self._begin(HangBegan(now, 0.0, False, ranks, dict(self._detector.ended)), attempt, now, asked=True)

    def _declare(self, declared: HangBegan, attempt: Attempt, now: float) -> None:
        self._hangs += 1
        if self._hangs > _MOST_HANGS:
            self._act(attempt, [])
        else:
            self._begin(declared, attempt, now)

    def _begin(self, began: HangBegan, attempt: Attempt, now: float, asked: bool = False) -> None:
        self._task = asyncio.ensure_future(self._collect(began, attempt, now, asked))
        self._task.add_done_callback(self._collected)

    def _collected(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if not task.cancelled() and task.exception() is not None:
            say(f"cordee supervisor: what shows why the run hangs could not be collected: {task.exception()!r}")

    async def _collect(self, began: HangBegan, attempt: Attempt, now: float, asked: bool) -> None:
        files, self._gathers = HangFiles(self.run.folder, attempt.number), self._gathers + 1
        self._collecting = collecting = _Collecting(began, attempt, files, now, asked)
        if not asked:
            say(f"cordee supervisor: no rank of attempt {attempt.number} has gone on for {now - began.since:.0f} s")
        first = self._lane.submit(files.begin)
        late = not asked and self._policy.action == "report"
        for node in attempt.nodes:
            if not self.run.order(node, Gather(_id_of(self._gathers), attempt.number, _COLLECT_S, late)):
                collecting.open.discard(node.name)
                collecting.note(f"{node.name}: its agent is gone")
        await collecting.told()
        for name in sorted(collecting.open):
            collecting.note(f"{name}: not all was told in time")
        collecting.described = True
        described = self._lane.submit(lambda: files.describe(self._document(collecting)))
        findings: list[Finding] = []
        most_s = patience_s(_MORE_S + _WRITE_S * len(collecting.node_of), collecting.times)
        written = await _at_most(asyncio.wrap_future(described), most_s)
        if asked:
            return
        fault = first.exception() if written else TimeoutError("the disk does not answer")
        if fault is None:
            findings = await self._judged(collecting)
        told = findings or [self._without_judgement(collecting, str(fault or files.refused))]
        for finding in told:
            self._write(finding)
        if not findings:  # the judgement may have been killed: it is tried once more
            collecting.late.set()
        if late and told[0].rule == _UNKNOWN:
            again = asyncio.ensure_future(_at_most(self._judge_again(collecting, told[0]), MOST_S + _MORE_S))
            self._judging_again.add(again)
            again.add_done_callback(self._judging_again.discard)
        if findings or not self._is_quiet(began):
            self._act(attempt, findings)

    def _document(self, collecting: _Collecting) -> dict[str, Any]:
        """Return hang.json; made in the lane, once all that was told before is written."""
        began = collecting.began
        return {
            "schema": "cordee.hang/1",
            "number": collecting.files.number,
            "attempt": collecting.attempt.number,
            "declared_at": collecting.declared_at,
            "since": collecting.since,
            "after_s": began.after_s,
            "busy": began.busy,
            "asked": collecting.asked,
            "quiet": self._is_quiet(began),
            "action": self._policy.action,
            "world": len(began.ranks) + len(began.ended),
            "ranks": {
                rank: [collecting.node_of.get(rank, ""), stand.stands_s, stand.idle_s, stand.why]
                for rank, stand in sorted(began.ranks.items())
            },
            "ended": began.ended,
            "notes": [*collecting.notes, *([collecting.files.refused] if collecting.files.refused else [])],
        }

    def _is_quiet(self, began: HangBegan) -> bool:
        """Return whether doing nothing may be meant: no rank has told of a step, and nobody has said how long is too long."""
        return self._policy.after_s is None and not any(stand.began for stand in began.ranks.values())

    async def _judge_again(self, collecting: _Collecting, unknown: Finding) -> None:
        """Write what dumps say that come late, in the place of a finding that blames nobody."""
        while await collecting.late.wait():
            await asyncio.sleep(_OTHERS_S)
            collecting.late.clear()
            described = self._lane.submit(lambda: collecting.files.describe(self._document(collecting)))
            await asyncio.wrap_future(described)
            first, *others = await self._judged(collecting) or [unknown]
            if first.rule != _UNKNOWN:
                self.run.journal.append("finding", finding=first.document(), replaces=unknown.text)
                for finding in others:
                    self._write(finding)
                return

    async def _judged(self, collecting: _Collecting) -> list[Finding]:
        """Return the causes, as the document side finds them; nothing where it is not there."""
        asked = str(self.run.folder.root), str(collecting.files.number)
        output = await document_side(_REPORT, *asked, most_s=patience_s(_JUDGE_S, collecting.times), nice=AT_ONCE)
        try:
            return [Finding.from_document(one) for one in json.loads(output or b"{}").get("findings", [])]
        except (ValueError, TypeError, AttributeError):
            return []

    def _without_judgement(self, collecting: _Collecting, lost: str) -> Finding:
        """Return who stood; `lost` says why nothing that shows more could be kept, if so."""
        began = collecting.began
        stopped = [rank for rank, stand in sorted(began.ranks.items()) if stand.why == "stopped"]
        said = f"; stopped by a signal: rank {', '.join(map(str, stopped[:8]))}" if stopped else ""
        ended = f"; ended before: rank {', '.join(map(str, sorted(began.ended)[:8]))}" if began.ended else ""
        lasted = collecting.declared_at - collecting.since
        text = f"no rank of attempt {collecting.attempt.number} has gone on for {lasted:.0f} s{said}{ended}"
        what = "look at `cordee stacks` and `cordee flight` of this run"
        if lost:
            text, what = f"{text}; what shows why was not kept: {lost}", "make room for the run's folder"
        evidence = {"hang": collecting.files.number, "ranks": stopped, "nodes": [], "where": None}
        return Finding(text, "error", _UNKNOWN, next=what, evidence=evidence)

    def _write(self, finding: Finding) -> None:
        self.run.journal.append("finding", finding=finding.document())

    def _act(self, attempt: Attempt, findings: list[Finding]) -> None:
        """End the ranks where that is wanted: what was collected of them is safe by now."""
        meant = bool(findings) and all(one.rule == _MAY_BE_MEANT for one in findings)
        if self._policy.action == "report" or not self._detector.hangs or meant:
            return
        about = findings[0] if findings else None
        evidence = about.evidence if about is not None and isinstance(about.evidence, dict) else {}
        rank, node = next(iter(evidence.get("ranks", [])), None), next(iter(evidence.get("nodes", [])), None)
        text = about.text if about is not None else "no rank went on"
        reason = "end" if self._policy.action == "end" else "hang"
        outcome = AttemptOutcome("failed", Failure("hang", rank, node, reason=reason, message=text), text)
        self.run.happened(HangFound(attempt.number, AskToStop(monotonic(), outcome, 0.0, "")))


def _ranks_of(attempt: Attempt) -> dict[str, range]:
    """Return the ranks of each node."""
    per_node = attempt.ranks_per_node
    return {node.name: range(at * per_node, (at + 1) * per_node) for at, node in enumerate(attempt.nodes)}


def _id_of(number: int) -> str:
    return f"hang-{number}"


async def _at_most(work: Any, seconds: float) -> bool:
    """Wait for something, but no longer than this; return whether it was done."""
    try:
        await asyncio.wait_for(work, seconds)
    except asyncio.TimeoutError:
        return False
    return True
