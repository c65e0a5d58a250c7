"""Are the node's network links up, and as fast as they should be?"""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import Any, Optional

from cordee.machine.links import FabricPort, matches, read_links
from cordee.systems.vetting.node.checks._base import CannotTest, Check, Comparison, Context, Parameter, Result

LINKS = Parameter(
    "links", "texts", "ports, devices or interfaces that count, such as mlx5_*, mlx5_0/1, hsn*, eth0; without it, all of"
    " InfiniBand and RoCE, and hsn*"
)  # fmt: skip


class LinkStateCheck(Check):
    """Looks at state, cable and rate of each port; each is also held against the port of the same name on the peers.

    A link that is named must be up. Of the others InfiniBand ports and `hsn*` must be up unless somebody has switched them
    off; RoCE ports, of which many nodes have spare ones, need only be as on the peers.
    """

    name = "link.state"
    title = "Are the node's network links up, and as fast as they should be?"
    scope = "link"
    parameters = (
        LINKS,
        Parameter("count", "count", "how many links must be up"),
        Parameter("min_rate_gbit_per_s", "number", "lowest rate of a link that is up", unit="Gbit/s"),
    )

    def run(self, parameters: dict[str, Any], context: Context) -> Result:
        patterns, count = parameters.get("links"), parameters.get("count")
        links = links_of(context, patterns)
        if not links and not patterns and not count:
            where = context.host("/sys/class/infiniband")
            return self.result("skip", f"no InfiniBand, RoCE or Slingshot link, and none asked for ({where})")
        up = [link for link in links if link.up]
        faults = [f"no link {pattern}" for pattern in _unmatched(links, patterns or [])]
        faults += [f"{link.name} is down: {link.describe()}" for link in links if _must_be_up(link, patterns)]
        if count is not None and len(up) < count:
            faults.append(f"{len(up)} links are up, {count} expected")
        slowest = min((link.rate_gbit_per_s for link in up if link.rate_gbit_per_s), default=None)
        faults += _slow(up, parameters.get("min_rate_gbit_per_s"))
        facts: dict[str, Any] = {f"link {link.name}": link.describe() for link in links}
        facts["link names"] = " ".join(link.name for link in links)
        facts["links"] = [{"name": link.name, "up": link.up, "rate_gbit_per_s": link.rate_gbit_per_s} for link in links]
        return self.result(
            "fail" if faults else "pass",
            "; ".join(faults or [f"{link.name}: {link.describe()}" for link in links]),
            value=slowest,
            unit="Gbit/s",
            threshold=parameters.get("min_rate_gbit_per_s"),
            facts=facts,
            compare=[asdict(Comparison("same", of)) for of in ("link names", *(f"link {link.name}" for link in links))],
        )


def links_of(context: Context, patterns: Optional[list[str]]) -> list[FabricPort]:
    """Return the links that count.

    Raises:
        CannotTest: the kernel's list of network interfaces is not to be seen here.
    """
    place = context.host("/sys/class/net")
    if not os.path.isdir(place):
        raise CannotTest(f"the network interfaces are not to be seen: there is no {place}", "closed")
    return read_links(context.root, patterns)


def _unmatched(links: list[FabricPort], patterns: list[str]) -> list[str]:
    return [pattern for pattern in patterns if not any(matches(link.name, pattern) for link in links)]


def _must_be_up(link: FabricPort, patterns: Optional[list[str]]) -> bool:
    if link.up:
        return False
    return bool(patterns) or (link.kind != "roce" and not link.disabled)


def _slow(up: list[FabricPort], least: Optional[float]) -> list[str]:
    if least is None:
        return []
    unknown = [link.name for link in up if link.rate_gbit_per_s is None]
    if unknown:
        raise CannotTest(f"the kernel does not say how fast {', '.join(unknown)} is", "closed")
    slow = [link for link in up if link.rate_gbit_per_s is not None and link.rate_gbit_per_s < least]
    return [f"{link.name} runs at {link.rate_gbit_per_s:g} Gbit/s, {least:g} expected" for link in slow]
