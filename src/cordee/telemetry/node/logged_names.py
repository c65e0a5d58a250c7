"""Where the metrics come from that a node's ranks log: told once as facts of the group `logged`."""

from __future__ import annotations

import time
from typing import Any, Iterable, Mapping

from cordee.telemetry.node.samplers.device_facts import DeviceFacts

GROUP = "logged"
MOST_NAMES = 2000


class LoggedNames:
    """What has been declared of metrics on one node; `cordee.log` declares none.

    Args:
        node: the node's name.
    """

    def __init__(self, node: str) -> None:
        self._told = DeviceFacts(node, GROUP)
        self._known: dict[str, dict[str, Any]] = {}
        self._changed = False

    def declared(self, documents: Iterable[Mapping[str, Any]]) -> None:
        """Take declarations: `name`, its `source`, `also` another whose values were left out, and the `unit`."""
        for document in documents:
            name = str(document.get("name", ""))
            if name not in self._known and len(self._known) >= MOST_NAMES:
                continue
            known = self._known.setdefault(name, {})
            before = dict(known)
            for key, given in (("sources", document.get("source")), ("also", document.get("also"))):
                if given:
                    known[key] = sorted({*known.get(key, ()), str(given)})
            if document.get("unit"):
                known["unit"] = str(document["unit"])
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
