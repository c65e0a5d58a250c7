"""Why a run waits or failed and what to change: pure functions from what is known of it to findings.

A rule takes a Situation and yields findings; rules stand in tables by where the run is, the strongest first. The first
finding is the cause: its text stands after "because" in the verdict.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from cordee.backends.facts import HELD
from cordee.backends.reasons.clauses import Rule, note
from cordee.backends.reasons.meaning import reasons_of
from cordee.backends.reasons.situation import Situation
from cordee.core.findings import Finding
from cordee.core.words import counted
from cordee.systems.advise.course import (
    COURSE,
    between_segments,
    chain_without_progress,
    disks_are_full,
    no_first_word,
    said_by_the_run,
)
from cordee.systems.advise.failed import CAUSES, failed_below

SCHEMA = "cordee.advise/1"

_TABLES: dict[str, tuple[Rule, ...]] = {
    "waiting": (between_segments, disks_are_full),
    "starting": (no_first_word, disks_are_full),
    "running": COURSE,
    "finished": (),
    "failed": (chain_without_progress, *CAUSES, *COURSE),
    "cancelled": (),
}
_OF_STEPS: tuple[Rule, ...] = (failed_below, disks_are_full, said_by_the_run)
# A rule that ran hides those that would say the same in weaker words.
_HIDES = {
    "memory": {"memory", "signal", "killed", "job-out-of-memory", "memory-short", "failed", "gone", "exception"},
    "chain-no-progress": {"time", "failed", "no-checkpoint", "gone"},
    "time": {"failed", "gone", "signal"},
    "disk-full": {"failed"},
    "node-lost": {"failed", "node-out"},
    "gone": {"silent"},
}
_GENERAL = {"failed", "signal", "killed", "gone"}


@dataclass(frozen=True)
class Advice:
    """What there is to say: `where` the run is, one sentence, and findings with what to change, the cause first."""

    run: str
    where: str
    verdict: str
    findings: tuple[Finding, ...]
    facts: dict[str, Any]

    @property
    def failed(self) -> bool:
        """Whether the run failed."""
        return self.where == "failed"

    def lines(self) -> list[str]:
        """Return what `cordee advise` prints: the verdict with the cause's details below it, then the other findings."""
        lines = [f"{self.run}: {self.verdict}"]
        for finding in self.findings:
            first, *details = str(finding).splitlines()
            lines += details if self.verdict.endswith(finding.text) else [first, *details]
        return lines + [f"unknown: {text}" for text in self.facts["unknown"]]

    def document(self) -> dict[str, Any]:
        """Return the document of `cordee advise --json`."""
        return {
            "schema": SCHEMA,
            "run": self.run,
            "state": self.where,
            "verdict": self.verdict,
            "findings": [finding.document() for finding in self.findings],
            "facts": self.facts,
        }


def advise(situation: Situation) -> Advice:
    """Return why the run waits or failed, or what threatens it, and what to change."""
    where = situation.where
    of_the_place = _of_the_place(situation, where)
    below = where == "failed" and any(failed_below(situation))
    rules = _OF_STEPS if below else (*of_the_place, *_TABLES[where], _stuck_below)
    findings = _without_repeats(finding for rule in rules for finding in rule(situation))
    return Advice(situation.run, where, _verdict(situation, findings), tuple(findings), _facts(situation))


def _stuck_below(situation: Situation) -> Iterator[Finding]:
    """Pass on the advice on runs below it that do not go on."""
    for child in situation.stuck:
        advice = advise(child.situation)
        if advice.where not in ("waiting", "failed"):
            continue
        cause = advice.findings[0] if advice.findings else note("", "", "info")
        text = f"{child.name} {advice.verdict.removeprefix('it ')}"
        text += f"; {child.alike} more likewise" if child.alike else ""
        evidence = {**(cause.evidence or {}), "child": child.name, "rule": cause.rule}
        further = f"`cordee advise {situation.run}/{child.name}` says more"
        yield replace(cause, text=text, rule="below", next=cause.next or further, evidence=evidence)
    if situation.more_stuck:
        text = f"{counted(situation.more_stuck, 'more run')} below it do not go on for other reasons"
        yield note("below", text, "info", next=f"`cordee show {situation.run}` lists them")


def _of_the_place(situation: Situation, where: str) -> tuple[Rule, ...]:
    if where not in ("waiting", "starting", "running"):
        return ()
    reasons = reasons_of(situation)
    return reasons.waiting if where == "waiting" else reasons.running


def _without_repeats(findings: Iterable[Finding]) -> list[Finding]:
    kept: list[Finding] = []
    for finding in findings:
        hidden = {rule for other in kept for rule in _HIDES.get(other.rule, ())}
        cause = any(other.severity == "error" for other in kept)
        general = finding.rule in _GENERAL and cause
        if finding.rule not in hidden and not general and all(other.text != finding.text for other in kept):
            kept.append(finding)
    return kept


def _verdict(situation: Situation, findings: list[Finding]) -> str:
    where, state = situation.where, situation.state
    because = f" because {findings[0].text}" if findings else ""
    match where:
        case "waiting":
            if not because:
                return "it waits; the scheduler gives no reason"
            if situation.scheduler.state == HELD:
                return f"it has ended ({state.state}), and is held{because}" if state.ended else f"it is held{because}"
            return f"it waits{because}"
        case "starting":
            if not findings:
                return "it starts: its nodes are there and its first words are awaited"
            return f"it starts{':' if findings[0].severity == 'info' else ', but'} {findings[0].text}"
        case "failed":
            return f"it failed{because}" if because else "it failed; nothing says why"
        case "cancelled":
            if state.text.startswith("cancelled ") or state.cancel_requested:
                asked = state.text.partition(" ")[2] if state.text.startswith("cancelled ") else ""
                return f"it was cancelled{asked and ' '}{asked}; `cordee resume` continues it"
            if situation.scheduler.state == "CANCELLED" or not state.text:
                meaning = reasons_of(situation).meaning(situation)
                return f"{meaning.text}; {meaning.next}"
            return f"it was cancelled ({state.text}); `cordee resume` continues it"
        case "finished":
            return "it finished; nothing to advise"
    grave = [finding for finding in findings if finding.severity != "info"]
    return f"it runs, but {grave[0].text}" if grave else "it runs; nothing to advise"


def _facts(situation: Situation) -> dict[str, Any]:
    """Return what the advice was given from; None and empty mean unknown."""
    return {
        "journal_state": situation.state.state,
        "scheduler": asdict(situation.scheduler) if situation.scheduler.scheduler else None,
        "memory": asdict(situation.memory),
        "disks": [asdict(disk) for disk in situation.disks],
        "output": list(situation.output),
        "segments": situation.state.chain,
        "unknown": [*situation.unknown, *situation.scheduler.unknown],
    }
