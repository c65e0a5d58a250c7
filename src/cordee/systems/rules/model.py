"""The models of a file of rules about runs."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from cordee.core.documents.fields import Document, Duration, wrong
from cordee.core.documents.rule_files import CommonRule, CommonRuleFile, RulePattern, RuleText, SeveralOf
from cordee.core.units import utc_text

_GLOB = re.compile(r"[][A-Za-z0-9_.*?!:/@+-]{1,120}\Z")
_OF_METRICS = ("statistic", "over", "above", "below")
_MONTH_S = 30 * 86400.0


def _glob(value: str) -> str:
    if _GLOB.match(value) is None:
        raise wrong("is no name", "a name or a pattern with * and ?, such as hardware-*")
    return value


Glob = Annotated[str, AfterValidator(_glob)]
NameGlobs = Annotated[tuple[Glob, ...], SeveralOf, Field(min_length=1, max_length=64)]
Rank = Annotated[int, Field(ge=0, le=10_000_000)]
Ranks = Annotated[tuple[Rank, ...], SeveralOf, Field(min_length=1, max_length=1024)]
Severity = Literal["info", "warn", "error"]
Severities = Annotated[tuple[Severity, ...], SeveralOf, Field(min_length=1)]
Number = Annotated[float, Field(strict=False, allow_inf_nan=False)]
Period = Annotated[Duration, Field(ge=1, le=400 * 86400.0)]
Times = Annotated[int, Field(ge=1, le=1000)]


class RunCondition(Document):
    """`when`: what a rule looks at, one of `event`, `finding` and `metric`; what else is given must hold, too.

    `event` and `finding` are names or globs of the journal's events and of the rules of findings. `pattern` is searched
    without regard to case in the text of a finding, or in the fields of an event as JSON.
    """

    event: NameGlobs | None = None
    finding: NameGlobs | None = None
    metric: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    severity: Severities | None = None
    node: NameGlobs | None = None
    rank: Ranks | None = None
    pattern: RulePattern | None = None
    statistic: Literal["mean", "min", "max", "count"] | None = None
    over: Period | None = None
    above: Number | None = None
    below: Number | None = None
    times: Times = 1
    within: Period | None = None
    runs: Annotated[int, Field(ge=2, le=100)] | None = None
    same: Literal["node", "switch", "job"] | None = None

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        looks_at = [name for name in ("event", "finding", "metric") if getattr(self, name) is not None]
        if len(looks_at) != 1:
            raise wrong(f"looks at {' and '.join(looks_at) or 'nothing'}", "one of event, finding and metric")
        given = [name for name in _OF_METRICS if getattr(self, name) is not None]
        if self.metric is None and given:
            raise wrong(f"has {given[0]} without a metric", "metric, statistic, over, above, below together")
        if self.metric is not None and self.above is None and self.below is None:
            raise wrong("compares the metric with nothing", "above, below or both, each a number")
        if self.metric is not None and (self.pattern or self.severity or self.within):
            raise wrong("has what is of findings beside a metric", "for a metric: statistic, over, above, below, times")
        if self.severity is not None and self.finding is None:
            raise wrong("has a severity without a finding", "finding and severity together")
        if self.runs is not None and (self.finding is None or self.times != 1):
            raise wrong(
                "counts runs by something else than a finding", "finding, runs, within, same; times is of one run"
            )
        if self.same is not None and self.runs is None:
            raise wrong("has same without runs", "runs, a number from 2, with same")
        return self

    def resolved(self) -> dict[str, Any]:
        """Return it as `cordee.systems.rules.node.judge` reads it: only the keys that matter."""
        found = {key: value for key, value in self.model_dump().items() if value is not None}
        found = {key: list(value) if isinstance(value, tuple) else value for key, value in found.items()}
        if self.pattern is not None:
            found["pattern"] = f"(?i){self.pattern}"
        if self.metric is not None:
            found.update(statistic=self.statistic or "mean", over=self.over or 60.0)
        if self.runs is not None:
            found.update(same=self.same or "node", within=self.within or _MONTH_S)
        return found


class RunExample(Document):
    """`example` and `counterexample`: what a rule looks at, so often (`times`), or in so many runs (`runs`).

    `text` is that of a finding or, of an event, of its fields; `value` is the statistic over one window of the metric.
    """

    event: Glob | None = None
    finding: Glob | None = None
    metric: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    severity: Severity = "warn"
    node: Glob | None = None
    rank: Rank | None = None
    text: Annotated[str, Field(max_length=2000)] = ""
    value: Number | None = None
    times: Times = 1
    runs: Times = 1

    def events(self) -> list[dict[str, Any]]:
        """Return the events of the journal that it stands for, a second apart."""
        place = {"nodes": [self.node] if self.node else [], "ranks": [] if self.rank is None else [self.rank]}
        found = []
        for at in range(self.times):
            event: dict[str, Any] = {"event": self.event or "finding", "time": utc_text(float(at))}
            if self.event is None:
                event["finding"] = {"rule": self.finding or "", "severity": self.severity, "text": self.text}
                event["finding"]["evidence"] = place
            else:
                event.update(place, text=self.text)
            found.append(event)
        return found


class RunRule(CommonRule):
    """One rule about runs: what operators want to be told, and what helps.

    `action` is what is to be done about what the rule names, by people: nothing is done by itself. How grave the finding is
    follows from it: `none` is information, `drain` an error, all others a warning.
    """

    when: RunCondition
    scope: Literal["node", "link", "user", "fleet"]
    action: Literal["none", "tell", "exclude", "reset_gpu", "reboot", "drain", "ticket"]
    next: RuleText
    example: RunExample
    counterexample: RunExample

    def resolved(self, origin: str) -> dict[str, Any]:
        """Return it as a plan holds it; `origin` is the file that it comes from."""
        return {
            "id": self.id,
            "text": self.text,
            "when": self.when.resolved(),
            "scope": self.scope,
            "action": self.action,
            "next": self.next,
            "source": self.source,
            "origin": origin,
        }


class RunRuleFile(CommonRuleFile):
    """A file of rules about runs; each is judged by itself."""

    rules: Annotated[tuple[RunRule, ...], Field(strict=False, min_length=1, max_length=500)]
