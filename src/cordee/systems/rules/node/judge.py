"""Which rules hold: for events of a journal, and for windows of metrics. Rules are data: nothing of them is evaluated as code."""

from __future__ import annotations

import json
from collections import deque
from typing import Any, Deque, Iterable, Mapping, NamedTuple, Optional

from cordee.core.findings import SEVERITIES, Finding
from cordee.core.rules import any_glob, any_pattern
from cordee.core.units import format_duration, parse_utc

# Of a finding's evidence: the rule that wrote it.
MARK = "site_rule"
MOST_PLACES = 50
_MOST_TRACKED, _MOST_NAMED, _MOST_TEXT = 100_000, 1000, 2000
_FRAME = frozenset(("schema", "epoch", "seq", "writer", "mono", "time", "event"))
_SEVERITY = {"none": "info", "drain": "error"}


class RulePlace(NamedTuple):
    """What a rule holds for: nodes and ranks, and the device where it is neither of them."""

    nodes: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    device: str = ""

    def __str__(self) -> str:
        nodes = ", ".join(self.nodes[:4]) + (f" and {len(self.nodes) - 4} more" if len(self.nodes) > 4 else "")
        ranks = ", ".join(map(str, self.ranks[:4])) + (f" and {len(self.ranks) - 4} more" if self.ranks[4:] else "")
        word = "rank" if len(self.ranks) == 1 else "ranks"
        return ", ".join(filter(None, (nodes, f"{word} {ranks}" if ranks else "", self.device)))


class RuleMatch(NamedTuple):
    """A rule holds.

    Attributes:
        rule: as a plan holds it.
        at: UTC epoch seconds.
        place: what it holds for.
        what: why, for people.
        value: of a metric's window.
    """

    rule: Mapping[str, Any]
    at: float
    place: RulePlace
    what: str
    value: Optional[float] = None


class RuleJudge:
    """Judges the events and windows of one run, in their order; what it remembers is bounded.

    Args:
        rules: as a plan holds them; those that count over runs are passed over.

    Attributes:
        windows: the rules that look at a metric.
        untracked: whether there was more to remember than it may.
    """

    def __init__(self, rules: Iterable[Mapping[str, Any]]) -> None:
        own = [rule for rule in rules if "runs" not in rule["when"]]
        self.windows = [rule for rule in own if "metric" in rule["when"]]
        self._events = [rule for rule in own if "metric" not in rule["when"]]
        self._seen: dict[tuple[str, RulePlace], Deque[float]] = {}
        self._streaks: dict[tuple[str, RulePlace], tuple[int, int]] = {}
        self.untracked = False

    def event(self, event: Mapping[str, Any]) -> list[RuleMatch]:
        """Return which rules hold for an event of the journal, what came before in mind."""
        if not self._events or is_of_a_rule(event):
            return []
        found, about = [], about_event(event)
        for rule in self._events:
            if holds(rule["when"], about) and self._often_enough(rule, about):
                found.append(RuleMatch(rule, about["at"], about["place"], about["what"]))
        return found

    def window(self, rule: Mapping[str, Any], place: RulePlace, number: int, value: float) -> Optional[RuleMatch]:
        """Return whether a rule holds for a window of its metric, None if not.

        Args:
            rule: of `windows`.
            place: what was measured.
            number: of the window: they are counted from 1970 on.
            value: the statistic over it.
        """
        when = rule["when"]
        if not in_bounds(when, value) or not fits(when, place):
            return None
        last, streak = self._streaks.get((rule["id"], place), (number - 1, 0))
        streak = streak + 1 if last == number - 1 else 1
        if not self._keeps(self._streaks, (rule["id"], place)):
            return None
        self._streaks[rule["id"], place] = number, streak
        if streak < when["times"]:
            return None
        return RuleMatch(rule, (number + 1) * when["over"], place, measured(when, value), value)

    def _often_enough(self, rule: Mapping[str, Any], about: Mapping[str, Any]) -> bool:
        times, within = rule["when"]["times"], rule["when"].get("within")
        if times == 1:
            return True
        key = (rule["id"], about["place"])
        if not self._keeps(self._seen, key):
            return False
        seen = self._seen.setdefault(key, deque(maxlen=times))
        seen.append(about["at"])
        return len(seen) == times and (within is None or seen[-1] - seen[0] <= within)

    def _keeps(self, memory: Mapping[Any, Any], key: Any) -> bool:
        if key in memory or len(memory) < _MOST_TRACKED:
            return True
        self.untracked = True
        return False


def is_of_a_rule(event: Mapping[str, Any]) -> bool:
    """Return whether an event is a finding that a rule has written: no rule looks at those, but those that count over runs."""
    finding = event.get("finding")
    evidence = finding.get("evidence") if isinstance(finding, dict) else None
    return isinstance(evidence, dict) and MARK in evidence


def about_event(event: Mapping[str, Any]) -> dict[str, Any]:
    """Return what conditions look at of an event: `event, finding, severity, place, text, at`; and `what`, for people."""
    about: dict[str, Any] = {"event": event["event"], "finding": None, "severity": None, "at": _time(event)}
    document = event.get("finding") if event["event"] == "finding" else None
    if isinstance(document, dict):
        finding = Finding.from_document({"text": "", **document})
        there = finding.place()
        about.update(
            finding=str(finding.rule), severity=finding.severity, text=str(finding.text), what=str(finding.text)
        )
        about["place"] = RulePlace(_names(there["nodes"]), _ranks(there["ranks"]))
    else:
        failed = event.get("failure")
        failure = failed if isinstance(failed, dict) else {}
        nodes = _names(event.get("nodes"), event.get("node") or failure.get("node"))
        ranks = _ranks(event.get("ranks"), event.get("rank", failure.get("rank")))
        told = {key: value for key, value in event.items() if key not in _FRAME}
        said = event.get("reason") or event.get("text")
        about.update(place=RulePlace(nodes, ranks), text=json.dumps(told, default=str, ensure_ascii=False))
        about["what"] = f"{event['event']}: {said if isinstance(said, str) else about['text']}"
    about["text"] = about["text"][:_MOST_TEXT]
    return about


def holds(when: Mapping[str, Any], about: Mapping[str, Any]) -> bool:
    """Return whether a condition holds for what `about_event` says, but for how often."""
    if "event" in when and not any_glob(about["event"], when["event"]):
        return False
    if "finding" in when and (about["finding"] is None or not any_glob(about["finding"], when["finding"])):
        return False
    if "severity" in when and about["severity"] not in when["severity"]:
        return False
    return fits(when, about["place"]) and ("pattern" not in when or any_pattern(about["text"], when["pattern"]))


def fits(when: Mapping[str, Any], place: RulePlace) -> bool:
    """Return whether a place is among those that a condition names."""
    if "node" in when and not any(any_glob(node, when["node"]) for node in place.nodes):
        return False
    return "rank" not in when or any(rank in when["rank"] for rank in place.ranks)


def in_bounds(when: Mapping[str, Any], value: float) -> bool:
    """Return whether a value is what a condition waits for; what was not measured never is."""
    above, below = when.get("above"), when.get("below")
    return value == value and (above is None or value > above) and (below is None or value < below)


def measured(when: Mapping[str, Any], value: float) -> str:
    """Return what was measured, for people."""
    limits = " and ".join(f"{word} {when[word]:g}" for word in ("above", "below") if when.get(word) is not None)
    times = f", {when['times']} times running" if when["times"] > 1 else ""
    return (
        f"{when['statistic']} of {when['metric']} over {format_duration(when['over'])} is {value:.6g}, {limits}{times}"
    )


def rule_findings(rule: Mapping[str, Any], matches: list[RuleMatch]) -> Finding:
    """Return what a rule says of matches that came together: one finding, as their cause is one."""
    first = matches[0]
    nodes = sorted({node for match in matches for node in match.place.nodes})
    ranks = sorted({rank for match in matches for rank in match.place.ranks})
    devices = sorted({match.place.device for match in matches if match.place.device})
    where = str(RulePlace(tuple(nodes), tuple(ranks), ", ".join(devices[:4]))) or "the run"
    text = f"{rule['text'].rstrip('.')}: {where}: {first.what[:400]}"
    return as_finding(rule, text, nodes, ranks, at=first.at, value=first.value, places=[m.place for m in matches])


def as_finding(rule: Mapping[str, Any], text: str, nodes: list[str], ranks: list[int], **facts: Any) -> Finding:
    """Return a finding of a rule; how grave it is follows from what it has done: `none` is information, `drain` an error."""
    severity = _SEVERITY.get(rule["action"], "warn")
    assert severity in SEVERITIES
    evidence = {
        MARK: rule["id"],
        "action": rule["action"],
        "scope": rule["scope"],
        "source": rule["source"],
        "origin": rule["origin"],
        "nodes": nodes[:MOST_PLACES],
        "ranks": ranks[:MOST_PLACES],
        **facts,
    }
    return Finding(text, severity, rule["id"], next=rule["next"], evidence=evidence)


def _time(event: Mapping[str, Any]) -> float:
    try:
        return parse_utc(event["time"])
    except (KeyError, ValueError, TypeError):
        return 0.0


def _names(several: Any, one: Any = None) -> tuple[str, ...]:
    values = [*(several if isinstance(several, list) else []), one]
    return tuple(sorted({value for value in values if isinstance(value, str) and value}))[:_MOST_NAMED]


def _ranks(several: Any, one: Any = None) -> tuple[int, ...]:
    values = [*(several if isinstance(several, list) else []), one]
    return tuple(sorted({value for value in values if type(value) is int}))[:_MOST_NAMED]
