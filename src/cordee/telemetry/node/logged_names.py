"""Where the metrics come from that a node's ranks log: told once as facts of the group `logged`."""

from __future__ import annotations

import time
from typing import Any, Iterable

from cordee.telemetry.node.samplers.device_facts import DeviceFacts
from cordee.wire.facts import SourceFact

GROUP = "logged"
MOST_NAMES = 2000


class LoggedNames:
    """What ranks said of the metrics of one node; `cordee.log` says nothing of them.

    Args:
        node: the node's name.
    """

    def __init__(self, node: str) -> None:
        self._told = DeviceFacts(node, GROUP)
        self._known: dict[str, dict[str, Any]] = {}
        self._changed = False

    def take(self, facts: Iterable[SourceFact]) -> None:
        """Take what was said of metrics."""
        for fact in facts:
            if fact.name not in self._known and len(self._known) >= MOST_NAMES:
                continue
            known = self._known.setdefault(fact.name, {})
            before = dict(known)
            for key, given in (("sources", fact.source), ("also", fact.also)):
                if given:
                    known[key] = sorted({*known.get(key, ()), given})
            if fact.unit:
                known["unit"] = fact.unit
            if fact.counted:
                known["counted"] = True
            self._changed = self._changed or known != before

    def news(self) -> bytes:
        """Return a FACTS record of what was not told yet, empty when all was."""
        if not self._changed:
            return b""
        self._changed = False
        remarks = (
            [f"where more than {MOST_NAMES} metrics come from is not kept"] if len(self._known) >= MOST_NAMES else []
        )
        return self._told.changed(self._known, {}, time.time(), remarks)
