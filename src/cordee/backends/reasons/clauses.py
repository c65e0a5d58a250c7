"""How findings of advice are worded: clauses, and settings as cordee.toml has them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from cordee.backends.reasons.situation import Situation
from cordee.core.findings import Finding

Rule = Callable[[Situation], Iterable[Finding]]


def note(
    rule: str,
    text: str,
    severity: str = "warn",
    *,
    next: str | None = None,
    change: Mapping[str, Any] | None = None,
    given: Any = None,
    allowed: Any = None,
    **evidence: Any,
) -> Finding:
    """Return a finding whose text can stand after "because"; `change` is what to set in cordee.toml, by dotted key."""
    facts = {name: value for name, value in evidence.items() if value is not None}
    if change:
        facts["change"] = dict(change)
    return Finding(text, severity, rule, given=given, allowed=allowed, next=next, evidence=facts or None)


def setting(key: str, value: Any) -> str:
    """Return a dotted key and its value as cordee.toml has them: `[need] time = "30min"`."""
    table, _, name = key.rpartition(".")
    text = f'"{value}"' if isinstance(value, str) else str(value)
    if isinstance(value, (list, tuple)):
        text = "[" + ", ".join(f'"{item}"' for item in value) + "]"
    return f"[{table}] {name} = {text}"


def time_value(seconds: float) -> str:
    """Return a duration as one writes it in cordee.toml: `2h`, `90min`, `45s`; never longer than it is."""
    whole = int(seconds)
    for size, unit in ((3600, "h"), (60, "min")):
        if whole >= size and whole % size == 0:
            return f"{whole // size}{unit}"
    return f"{whole // 60}min" if whole >= 3600 else f"{whole}s"


def size_value(size_bytes: float, *, up: bool = False) -> str:
    """Return a size as one writes it in cordee.toml, in whole GB (MB below 2 GB), rounded down, or up."""
    unit, name = (10**9, "GB") if size_bytes >= 2 * 10**9 else (10**6, "MB")
    return f"{-int(-size_bytes // unit) if up else int(size_bytes // unit)}{name}"


def filled(text: str, situation: Situation) -> str:
    """Return a sentence of the tables with the job's facts in it."""
    facts = situation.scheduler
    values = {
        "job": facts.job or "JOB",
        "partition": facts.partition or "(unknown)",
        "account": facts.account or "(the default)",
        "qos": facts.qos or "(the default)",
    }
    return re.sub(r"\{(job|partition|account|qos)\}", lambda name: values[name.group(1)], text)
