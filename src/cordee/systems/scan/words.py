"""What `cordee scan` prints."""

from __future__ import annotations

from collections.abc import Iterator

from cordee.core.draw.clean import one_line
from cordee.core.errors import UsageError
from cordee.core.words import counted, did_you_mean
from cordee.systems.scan.files import ScanResult
from cordee.systems.scan.rules import RULES

_MOST_SIGHTS = 8


def lines(scan: ScanResult) -> Iterator[str]:
    """Yield the lines of a scan for a terminal."""
    for verdict in scan.bad:
        kinds = f" ({', '.join(verdict.kinds)})" if verdict.kinds else ""
        yield f"{verdict.verdict:8}{one_line(verdict.path, 4096)}{kinds}"
        shown = sorted(verdict.sights, key=lambda sight: ("block", "unknown", "warn").index(sight.severity))
        for sight in shown[:_MOST_SIGHTS]:
            where = f" [{sight.where}]" if sight.where else ""
            yield "        " + one_line(f"{sight.text}{where} - {sight.rule}", 4096)
        if len(shown) > _MOST_SIGHTS:
            yield f"        and {len(shown) - _MOST_SIGHTS} more"
    rules = {sight.rule for verdict in scan.bad for sight in verdict.sights if verdict.verdict in ("block", "unknown")}
    for rule in sorted(rules & RULES.keys()):
        yield f"next:   {rule}: {RULES[rule].next}"
    for path in scan.tree.special:
        yield f"        {one_line(path, 4096)} is no file that can be looked at"
    if scan.tree.left_out:
        yield f"        not entered: {', '.join(scan.tree.left_out[:6])}" + (
            " ..." if len(scan.tree.left_out) > 6 else ""
        )
    for note in scan.notes:
        yield f"        {note}"
    if not scan.confined:
        yield "        this kernel does not confine those that look: only their memory, time and files are limited"
    for note in scan.packages.notes if scan.packages else ():
        yield f"        {note}"
    packages = (
        f", {counted(len(scan.packages.packages), 'package')}" if scan.packages and scan.packages.packages else ""
    )
    yield f"{scan.files:,} files{packages}: {scan.verdict}"


def explained(rule: str) -> str:
    """Return what a rule means.

    Raises:
        UsageError: there is none of that name.
    """
    if rule not in RULES:
        raise UsageError(
            "there is no such rule",
            given=rule,
            allowed=sorted(RULES),
            next=did_you_mean(rule, RULES, "`cordee scan --help` says how it is used"),
        )
    words = RULES[rule]
    return f"{rule}\n  what:    {words.what}\n  why:     {words.why}\n  instead: {words.next}"
