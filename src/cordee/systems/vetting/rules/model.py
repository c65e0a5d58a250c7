"""The models of a rule file."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from cordee.core.documents.fields import Document, wrong
from cordee.core.documents.rule_files import CommonRule, CommonRuleFile, RulePattern, RuleText, SeveralOf

VERSION = 1
_GLOB = re.compile(r"[A-Za-z0-9_.*?:/-]{1,120}\Z")


def _glob(value: str) -> str:
    if _GLOB.match(value) is None:
        raise wrong("is not the name of a check", "a name or a pattern with * and ?, such as gpu.*")
    return value


Glob = Annotated[str, AfterValidator(_glob)]
Globs = Annotated[tuple[Glob, ...], SeveralOf, Field(min_length=1, max_length=64)]
Status = Literal["warn", "fail", "unknown"]
Cause = Literal["closed", "absent", "error", "timeout", "silent", "busy"]
Xid = Annotated[int, Field(ge=1, le=9999)]


class When(Document):
    """`when`: which results a rule is about; what is not given does not matter, and a pass or skip never matches.

    `check` is a name or glob (or a list of them), `xid` any of the numbers in the result's facts, `pattern` a regular
    expression that is searched in the evidence without regard to case.
    """

    check: Globs
    status: Annotated[tuple[Status, ...], SeveralOf, Field(min_length=1)] = ("warn", "fail", "unknown")
    cause: Annotated[tuple[Cause, ...], SeveralOf, Field(min_length=1)] | None = None
    xid: Annotated[tuple[Xid, ...], SeveralOf, Field(min_length=1, max_length=256)] | None = None
    pattern: RulePattern | None = None

    def resolved(self) -> dict[str, Any]:
        """Return it as `cordee.systems.vetting.node.judge.rules` reads it: lists, and only the keys that matter."""
        found: dict[str, Any] = {"check": list(self.check), "status": list(self.status)}
        if self.cause is not None:
            found["cause"] = list(self.cause)
        if self.xid is not None:
            found["xid"] = list(self.xid)
        if self.pattern is not None:
            found["pattern"] = f"(?i){self.pattern}"
        return found


class Example(Document):
    """`example` and `counterexample`: the part of a result document that a rule looks at."""

    check: Annotated[str, Field(min_length=1, max_length=120)]
    status: Literal["pass", "warn", "fail", "unknown", "skip"]
    cause: Cause | None = None
    evidence: Annotated[str, Field(max_length=2000)] = ""
    xids: tuple[Xid, ...] = Field(default=(), strict=False)

    def result(self) -> dict[str, Any]:
        """Return it as a result document."""
        facts = {"xids": list(self.xids)} if self.xids else {}
        return {
            "check": self.check,
            "name": self.check,
            "status": self.status,
            "cause": self.cause,
            "evidence": self.evidence,
            "facts": facts,
            "required": True,
        }


class VettingRule(CommonRule):
    """One rule: what a result means, whose fault it is, and what helps.

    `action` is what is done about a node (`scope` link or fleet: about what is behind it); `kind` says whether one such
    result is proof (`hard`), or whether others have to confirm it (`soft`). `recovery` is a ladder: what to try first,
    and what next when it comes back. `source` names public documentation. `example` is a result that the rule must
    match, `counterexample` one that it must not.
    """

    when: When
    scope: Literal["node", "link", "user", "fleet"]
    action: Literal["none", "exclude", "reset_gpu", "reboot", "drain", "ticket"]
    kind: Literal["hard", "soft"]
    recovery: Annotated[tuple[RuleText, ...], Field(strict=False, max_length=8)] = ()
    example: Example
    counterexample: Example

    def resolved(self, origin: str) -> dict[str, Any]:
        """Return it as a protocol's `rules` hold it; `origin` is the file that it comes from."""
        return {
            "id": self.id,
            "text": self.text,
            "when": self.when.resolved(),
            "scope": self.scope,
            "action": self.action,
            "kind": self.kind,
            "recovery": list(self.recovery),
            "source": self.source,
            "version": VERSION,
            "origin": origin,
        }


class RuleFile(CommonRuleFile):
    """A file of rules, in the order in which they are tried."""

    rules: Annotated[tuple[VettingRule, ...], Field(strict=False, min_length=1, max_length=2000)]
