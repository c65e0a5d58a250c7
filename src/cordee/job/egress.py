"""What a job may send where: the table `[egress]` of the job document, and the one of a cluster's profile."""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from cordee.core.documents.fields import Argv, Document, Duration, Lines, Name, Size, wrong

_HOST = re.compile(r"(?=.{1,253}$)[A-Za-z0-9_]([A-Za-z0-9_-]{0,62})?(\.[A-Za-z0-9_]([A-Za-z0-9_-]{0,62})?)*\.?$")


def _places(lines: tuple[str, ...]) -> tuple[str, ...]:
    for line in lines:
        try:
            ipaddress.ip_network(line, strict=False)
        except ValueError:
            numbers = re.fullmatch(r"[0-9.]+(/.*)?|.*[:/*].*", line)
            if numbers or not _HOST.match(line):
                raise wrong(
                    f"holds {line!r}, which is no destination", 'networks ("192.0.2.0/24"), addresses, names of hosts'
                ) from None
    return lines


def _schemes(lines: tuple[str, ...]) -> tuple[str, ...]:
    for line in lines:
        if line not in ("https", "http"):
            raise wrong(f"holds {line!r}, which cannot be fetched", "https, http")
    return lines


Schemes = Annotated[Lines, Field(min_length=1), AfterValidator(_schemes)]
Places = Annotated[Lines, AfterValidator(_places)]
Action = Literal["report", "stop"]


class EgressTable(Document):
    """`[egress]`: what the job sends out of the site."""

    watch: bool = True
    """Whether it is counted."""
    action: Action | None = None
    """What is done about a job that sends too much to destinations that nobody listed: a finding is written, or the job also ends. Without it, what the site says, else `report`."""
    most: Size | None = None
    """How much it may send to them, summed over its nodes. Without it, what the site says, else 1 GB."""
    allow: Places = ()
    """Destinations that the job means: networks, addresses, names of hosts. Where the site sets an action, its own list counts alone."""


class AgreedDestination(Document):
    """`[egress.agreed.NAME]`: a destination that the centre has agreed on."""

    hosts: Places
    """Its networks, addresses and names of hosts."""
    daily: Size | None = None
    """How much all runs together may send there in 24 hours; without it, any amount."""


class EgressSite(Document):
    """`[egress]`: where jobs of the cluster may send data."""

    site: Places | None = None
    """The site's own networks; without them, the private ones (RFC 1918, RFC 6598, unique local, link-local, loopback)."""
    registries: Places = ()
    """Registries of packages, images and models."""
    object_stores: Places = ()
    """Object stores outside of the site."""
    agreed: dict[Name, AgreedDestination] = Field(default_factory=dict)
    """Destinations that the centre has agreed on, by name."""
    daily: Size | None = None
    """How much all runs together may send in 24 hours to one network that is not agreed on."""
    action: Action | None = None
    """The least that is done about a job that sends too much to unlisted destinations; no job can ask for less."""
    most: Size | None = None
    """The most that a job may send there; a job can ask for less."""
    every: Annotated[Duration, Field(ge=1, le=60)] = 1.0
    """How often connections are looked at."""
    counters: str | None = None
    """The file into which the site's root-side command writes what a job has sent; `{job}` is the scheduler's number."""
    account: str | None = None
    """The folder in which runs leave what they have sent, for `cordee egress account`."""


class MisuseSite(Document):
    """`[misuse]`: signs that jobs mine or crack."""

    watch: bool = False
    """Whether they are looked for in every run."""
    names: Lines = ()
    """Programs that the site does not want, by the names of their files, such as `nmap` or `xmr*`, beside those that are known."""


class FetchSite(Document):
    """`[fetch]`: from where `cordee data fetch` may fetch on the cluster."""

    schemes: Schemes = ("https", "http")
    """What addresses of the web may begin with."""
    hosts: Places = ()
    """The only hosts that may be asked, with all below them; without them, all."""
    private: Places = ()
    """Networks that may be reached although they are not public."""
    blocked: str | None = None
    """A file with sites that nobody is to ask, one a line, which all share."""
    rate: Annotated[float, Field(strict=False, gt=0, le=1000)] = 5.0
    """How many requests a second one site gets from one fetch, at most."""
    scan: Argv | None = None
    """A command that gets each file as its last word before it gets its name; an exit code other than 0 refuses it."""
