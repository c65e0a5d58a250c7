"""What was seen on a node, one finding for each cause: counted on, and told again only where it has got worse."""

from __future__ import annotations

from typing import Any, Mapping, NamedTuple, Optional

from cordee.core.clock import unix_s
from cordee.core.findings import SEVERITIES, Finding
from cordee.core.units import utc_text
from cordee.wire.messages import NodeFinding

_MOST = 64


class Seen(NamedTuple):
    """One thing that was seen.

    Attributes:
        rule, severity: of the finding.
        device: UUID, PCI address, port, disk, server or program; empty: the node as a whole.
        kind: with rule and device, the cause.
        text: a sentence without its subject, which is `about`.
        about: the device for a person.
        next: what to do.
        total: how often until now, where it is counted elsewhere; None: once more.
        shared: the same on other nodes is the same cause.
        facts: for machines: `ranks`, `before`, `after`, `line`.
    """

    rule: str
    severity: str
    device: str
    kind: str
    text: str
    next: str
    about: str = ""
    total: Optional[int] = None
    shared: bool = False
    facts: Mapping[str, Any] = {}


class _Cause:
    def __init__(self) -> None:
        self.count, self.since = 0, unix_s()
        self.told: Optional[NodeFinding] = None


class Causes:
    """All causes of a node, of bounded number.

    Args:
        node: its name.
        one_machine: other nodes of the run are the same machine: what one sees, all see.
    """

    def __init__(self, node: str, one_machine: bool) -> None:
        self._node, self._one_machine = node, one_machine
        self._causes: dict[str, _Cause] = {}

    def take(self, seen: Seen) -> None:
        """Count what was seen; it is told at first, and again at 10, 100, ... times, and where it has become graver."""
        key = " ".join(filter(None, (seen.rule, seen.kind, seen.device)))
        if key not in self._causes and len(self._causes) >= _MOST:
            self._too_many()
            return
        cause = self._causes.setdefault(key, _Cause())
        cause.count = cause.count + 1 if seen.total is None else max(cause.count, seen.total)
        level = len(str(cause.count)) + 100 * SEVERITIES.index(seen.severity)
        if cause.told is not None and cause.told.level >= level:
            return
        times = (
            f" ({cause.count} times since {utc_text(cause.since)})" if seen.total is None and cause.count > 1 else ""
        )
        text = f"{seen.about or seen.device}: {seen.text}{times}" if seen.about or seen.device else seen.text + times
        evidence = {"kind": seen.kind, "device": seen.device, "count": cause.count, **seen.facts}
        finding = Finding(text, seen.severity, seen.rule, next=seen.next, evidence=evidence)
        cause.told = NodeFinding(key, level, seen.shared or self._one_machine, finding.document())

    def found(self) -> tuple[NodeFinding, ...]:
        """Return all that is to be told, each at its highest level."""
        return tuple(cause.told for cause in self._causes.values() if cause.told is not None)

    def _too_many(self) -> None:
        text = f"more than {_MOST} causes of trouble: the others are not told"
        finding = Finding(text, "warn", "unwatched-hardware", next="look at this node's kernel log")
        self._causes.setdefault("more", _Cause()).told = NodeFinding("more", 1, self._one_machine, finding.document())
