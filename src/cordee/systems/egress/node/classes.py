"""Which class an address belongs to: the site's own networks, registries, object stores, what is agreed; all else is the rest."""

from __future__ import annotations

import ipaddress
import socket
from typing import Callable, Mapping, NamedTuple, Sequence, Union

SITE, REGISTRIES, OBJECT_STORES, LISTED, REST = CLASSES = ("site", "registries", "object_stores", "listed", "rest")
# Where a profile names no networks of the site: those that nobody routes to the outside.
PRIVATE = (
    "127.0.0.0/8",
    "::1/128",
    "10.0.0.0/8",
    "172.16.0.0/12",
    "192.168.0.0/16",
    "100.64.0.0/10",
    "169.254.0.0/16",
    "fe80::/10",
    "fc00::/7",
)
_MOST_KNOWN = 100_000

Network = Union[ipaddress.IPv4Network, ipaddress.IPv6Network]


class Destination(NamedTuple):
    """What is known of an address: its class, and the name under which the profile or the job lists it."""

    kind: str
    name: str = ""


class DestinationClasses:
    """Addresses by class; of several networks that hold one, the narrowest counts.

    Args:
        listed: by class, networks (`192.0.2.0/24`), addresses, or names of hosts, each with the name that it is listed under.
        resolve: returns the addresses of a host; it may wait.
    """

    def __init__(
        self,
        listed: Mapping[str, Mapping[str, str]],
        resolve: Callable[[str], Sequence[str]] = lambda name: addresses(name),
    ) -> None:
        self._resolve = resolve
        self._networks: list[tuple[Network, Destination]] = []
        self._hosts: dict[str, Destination] = {}
        for kind, places in listed.items():
            for place, name in places.items():
                network = network_of(place)
                if network is None:
                    self._hosts[place] = Destination(kind, name or place)
                else:
                    self._networks.append((network, Destination(kind, name)))
        self._networks.sort(key=lambda one: -one[0].prefixlen)
        self._of_hosts: dict[str, Destination] = {}
        self._known: dict[str, Destination] = {}

    @property
    def names_hosts(self) -> bool:
        """Whether some are names, whose addresses are to be asked for."""
        return bool(self._hosts)

    def ask(self) -> None:
        """Ask for the addresses of hosts that are listed by name; what one had before stays its own. This may wait."""
        for host, destination in self._hosts.items():
            for address in self._resolve(host):
                self._of_hosts[address] = destination
                self._known.pop(address, None)

    def of(self, address: str) -> Destination:
        """Return what is known of an address; not an address: the rest."""
        known = self._known.get(address)
        if known is None:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            known = self._known[address] = self._of_hosts.get(address) or self._by_network(address)
        return known

    def _by_network(self, address: str) -> Destination:
        try:
            parsed = ipaddress.ip_address(address)
        except ValueError:
            return Destination(REST)
        return next(
            (about for network, about in self._networks if network.version == parsed.version and parsed in network),
            Destination(REST),
        )


def network_of(text: str) -> Union[Network, None]:
    """Return the network or address that a text names, None where it is something else."""
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None


def addresses(name: str) -> list[str]:
    """Return the addresses of a host; none where nobody knows it. This may wait."""
    try:
        told = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []
    return sorted({str(one[4][0]).partition("%")[0] for one in told})
