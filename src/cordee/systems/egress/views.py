"""What a run's nodes have told of its egress, summed: for reports and commands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from cordee.core.errors import UsageError
from cordee.core.stats import finite_values
from cordee.systems.egress.node.classes import CLASSES, REST, SITE
from cordee.systems.egress.node.companion import NODE_DEVICE

if TYPE_CHECKING:
    from cordee.telemetry.store.reader import Run


class SentTo(NamedTuple):
    """What has gone to one destination, or to all of a class, in bytes; a class has no address."""

    kind: str
    address: str = ""
    name: str = ""
    sent: int = 0
    received: int = 0
    connections: int = 0

    def plus(self, about: Mapping[str, Any]) -> SentTo:
        """Return it with what one node tells."""
        return self._replace(
            sent=self.sent + int(about.get("sent_bytes", 0)),
            received=self.received + int(about.get("received_bytes", 0)),
            connections=self.connections + int(about.get("connections", 0)),
        )

    def document(self) -> dict[str, Any]:
        """Return it as the run document has it."""
        numbers = {"sent_bytes": self.sent, "received_bytes": self.received, "connections": self.connections}
        return {"class": self.kind, "address": self.address, "name": self.name, **numbers}


class EgressSums(NamedTuple):
    """A run's egress.

    Attributes:
        destinations: by address.
        classes: by class, those with bytes.
        methods: what counted it, with what that counts and leaves out.
        unclaimed: bytes sent by connections of which nobody knows whose they were.
        remarks: what is missing.
    """

    destinations: dict[str, SentTo]
    classes: dict[str, SentTo]
    methods: dict[str, str]
    unclaimed: int
    remarks: tuple[str, ...]

    def outside(self) -> list[SentTo]:
        """Return the destinations outside of the site, that with most bytes sent first."""
        return sorted((one for one in self.destinations.values() if one.kind != SITE), key=lambda one: -one.sent)

    def document(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {
            "methods": self.methods,
            "classes": {kind: one.document() for kind, one in self.classes.items()},
            "destinations": [one.document() for one in self.outside()],
            "unclaimed_sent_bytes": self.unclaimed,
            "remarks": list(self.remarks),
        }


def sums_of(facts: Mapping[str, Mapping[str, Any]]) -> EgressSums:
    """Return the sums over nodes of their facts of the group `egress`."""
    destinations: dict[str, SentTo] = {}
    methods: dict[str, str] = {}
    remarks: dict[str, None] = {}
    unclaimed = 0
    for node, told in sorted(facts.items()):
        remarks.update(dict.fromkeys(f"{node}: {remark}" for remark in told["remarks"]))
        for address, about in told["devices"].items():
            if address == NODE_DEVICE:
                methods[str(about.get("method"))] = str(about.get("precision"))
                unclaimed += int(about.get("unclaimed_sent_bytes", 0))
                if about.get("remark"):
                    remarks[f"{node}: {about['remark']}"] = None
                continue
            known = destinations.get(address) or SentTo(
                str(about.get("class", REST)), address, str(about.get("name", ""))
            )
            destinations[address] = known.plus(about)
    classes: dict[str, SentTo] = {}
    for kind in CLASSES:
        of_class = [one.document() for one in destinations.values() if one.kind == kind]
        if of_class:
            total = SentTo(kind)
            for one in of_class:
                total = total.plus(one)
            classes[kind] = total
    return EgressSums(destinations, classes, methods, unclaimed, tuple(remarks))


def rates_of(run: Run, start: float | None, stop: float | None, points: int) -> dict[str, Any]:
    """Return bytes sent per second by class, summed over the nodes: `times` in UTC seconds, `classes` with null where nothing was measured.

    Args:
        run: that is open.
        start, stop: UTC epoch seconds; None: all of it.
        points: at most so many.
    """
    import numpy as np

    from cordee.telemetry.store.views import heat

    try:
        seen = heat(run, "egress", "egress_transmit_bytes_per_second", start, stop, points)
    except UsageError:  # nothing was counted
        return {"times": [], "classes": {}}
    kinds = [str(device).rpartition(" ")[2] for device in seen.devices]
    classes = {}
    for kind in CLASSES:
        rows = seen.values[[at for at, one in enumerate(kinds) if one == kind]]
        if np.nansum(rows) > 0:
            known = np.isfinite(rows).any(axis=0)
            classes[kind] = finite_values(np.where(known, np.nansum(rows, axis=0), np.nan))
    return {"times": seen.times.tolist(), "classes": classes}
