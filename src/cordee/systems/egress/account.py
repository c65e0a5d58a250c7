"""What all runs of a site have sent, by destination and day, against what the centre has agreed on."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cordee.core.errors import UsageError
from cordee.job.egress import EgressSite
from cordee.machine.foreign_files import read_json
from cordee.systems.egress.examine import listed_places
from cordee.systems.egress.node.classes import REST, SITE, DestinationClasses
from cordee.systems.egress.node.watch import SCHEMA

_PREFIX = {4: 24, 6: 48}


@dataclass
class SentThere:
    """What has gone to one destination: an agreed one by its name, a listed one, or a network that nobody listed.

    Attributes:
        days: bytes sent by day (UTC).
        daily: how much may go there in a day, None: any amount.
    """

    destination: str
    kind: str
    daily: int | None = None
    days: dict[str, int] = field(default_factory=dict)
    received: int = 0
    runs: set[str] = field(default_factory=set)
    users: set[int] = field(default_factory=set)

    @property
    def sent(self) -> int:
        """Bytes sent, of all days."""
        return sum(self.days.values())

    @property
    def over(self) -> list[str]:
        """The days on which more was sent than may be."""
        return [] if self.daily is None else sorted(day for day, sent in self.days.items() if sent > self.daily)

    def document(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {
            "destination": self.destination,
            "class": self.kind,
            "sent_bytes": self.sent,
            "received_bytes": self.received,
            "days": dict(sorted(self.days.items())),
            "daily_bytes": self.daily,
            "over": self.over,
            "runs": len(self.runs),
            "users": sorted(self.users),
        }


@dataclass
class SiteAccount:
    """The sums, that with most bytes first, and the files that were left out with the reason."""

    destinations: list[SentThere]
    left_out: dict[str, str]


def site_account(site: EgressSite, days: int, now: datetime | None = None) -> SiteAccount:
    """Sum what runs have left in the site's account in the last days, today among them.

    Whose a record is, its file says, and not its text.

    Raises:
        UsageError: the site keeps no account, or it cannot be read.
    """
    if site.account is None:
        raise UsageError("this cluster keeps no account of egress", next="set [egress] account in its profile")
    today = (now or datetime.now(UTC)).date()
    wanted = {str(today - timedelta(days=back)) for back in range(days)}
    classes = DestinationClasses(listed_places(site))
    sums: dict[str, SentThere] = {}
    left_out: dict[str, str] = {}
    for path in _records(Path(site.account), wanted):
        try:
            record = read_json(path, Path(site.account))
            if record.get("schema") != SCHEMA:
                raise ValueError(f"it is no {SCHEMA}")
            owner = path.stat().st_uid
            moved = [(address, *_told(about)) for address, about in record["destinations"].items()]
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            left_out[str(path)] = str(error)
            continue
        for address, kind, name, sent, received in moved:
            there = _place(sums, site, classes, address, kind, name)
            if there is not None:
                there.days[path.parent.name] = there.days.get(path.parent.name, 0) + sent
                there.received += received
                there.runs.add(path.stem)
                there.users.add(owner)
    return SiteAccount(sorted(sums.values(), key=lambda one: (not one.over, -one.sent)), left_out)


def _records(folder: Path, days: set[str]) -> Iterator[Path]:
    try:
        found = sorted(name for name in os.listdir(folder) if name in days)
        for day in found:
            yield from sorted((folder / day).glob("*.json"))
    except OSError as error:
        raise UsageError(f"the account cannot be read: {error.strerror}", given=str(folder)) from None


def _told(about: Any) -> tuple[str, str, int, int]:
    sent, received = about["sent_bytes"], about["received_bytes"]
    if type(sent) is not int or type(received) is not int or sent < 0 or received < 0:
        raise ValueError("it holds what are no numbers of bytes")
    return str(about["class"]), str(about["name"]), sent, received


def _place(
    sums: dict[str, SentThere], site: EgressSite, classes: DestinationClasses, address: str, kind: str, name: str
) -> SentThere | None:
    """Return where it counts: by today's list where that knows the address, else by what the node knew; None: the site's own."""
    known = classes.of(address)
    if known.kind != REST:
        kind, name = known.kind, known.name
    if kind == SITE:
        return None
    agreed = site.agreed.get(name)
    if agreed is None:
        name = name or network_named(address)
    daily = agreed.daily if agreed is not None else site.daily if kind in (REST, "listed") else None
    return sums.setdefault(name, SentThere(name, kind if agreed is None else "agreed", daily))


def network_named(address: str) -> str:
    """Return the network of an address that counts as one destination: /24, for IPv6 /48."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return "others"
    return str(ipaddress.ip_network(f"{parsed}/{_PREFIX[parsed.version]}", strict=False))
