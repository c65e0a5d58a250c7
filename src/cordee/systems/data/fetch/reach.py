"""Where may be fetched from: schemes, hosts, addresses. What is connected to is the address that was looked at, never a name."""

from __future__ import annotations

import ipaddress
import socket
import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_RESOLVE_S = 10.0
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
# Below these two labels anybody can have a name, so that a site is three labels.
_SHARED = {"ac", "co", "com", "edu", "go", "gov", "mil", "ne", "net", "nom", "or", "org", "sch"}


class Refused(Exception):
    """It is not fetched, and trying again would change nothing.

    Attributes:
        why: one word: `scheme`, `host`, `address`, `redirect`, `blocked`, `size`, `type`, `checksum`, `scan`, `name`, `encoding`.
    """

    def __init__(self, why: str, text: str) -> None:
        super().__init__(text)
        self.why = why


class Reach(NamedTuple):
    """What may be reached.

    Attributes:
        schemes: `https`, `http`.
        hosts: names; those below them belong to them. Empty: all.
        private: networks that may be reached although they are not public.
    """

    schemes: tuple[str, ...] = ("https", "http")
    hosts: tuple[str, ...] = ()
    private: tuple[Network, ...] = ()

    def split(self, url: str) -> SplitResult:
        """Return the parts of a URL that may be fetched, as far as it tells by itself.

        Raises:
            Refused: it may not.
        """
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError as error:
            raise Refused("url", f"it is no URL: {error}") from None
        if parts.scheme not in self.schemes:
            raise Refused("scheme", f"{parts.scheme or 'no scheme'}: only {', '.join(self.schemes)} may be fetched")
        if not host or any(ord(letter) <= 32 or ord(letter) == 127 for letter in url):
            raise Refused("url", "it names no host, or holds blanks or control characters")
        if parts.username is not None or parts.password is not None:
            raise Refused("url", "a name or password stands in it: lists are kept and shown")
        if port == 0:
            raise Refused("url", "its port is 0")
        if self.hosts and not any(host == one or host.endswith(f".{one}") for one in self.hosts):
            raise Refused("host", f"{host} is none of the hosts that may be fetched from")
        return parts

    def addresses(self, host: str, port: int, resolve: Callable[[str, int], Sequence[str]]) -> list[str]:
        """Return the addresses of a host that may be connected to.

        Raises:
            Refused: it has only others.
            OSError: nobody knows the host.
        """
        found = list(dict.fromkeys(resolve(host, port)))
        allowed = [address for address in found if self.allows(address)]
        if not allowed:
            raise Refused("address", f"{host} is {', '.join(found[:3])}, which is not public")
        return allowed

    def allows(self, address: str) -> bool:
        """Return whether an address is public, or among the networks that are named; also what it wraps must be."""
        try:
            parsed = ipaddress.ip_address(address.partition("%")[0])
        except ValueError:
            return False
        return all(self._allows(one) for one in (parsed, *_wrapped(parsed)))

    def _allows(self, address: Address) -> bool:
        if any(address.version == network.version and address in network for network in self.private):
            return True
        if isinstance(address, ipaddress.IPv6Address) and _wrapped(address):
            return True  # what it wraps is looked at
        return address.is_global and not address.is_multicast and not address.is_unspecified and not address.is_reserved


def _wrapped(address: Address) -> tuple[Address, ...]:
    """Return the IPv4 addresses that an IPv6 address stands for: mapped, 6to4, Teredo, NAT64, compatible."""
    if not isinstance(address, ipaddress.IPv6Address):
        return ()
    found: list[Address] = [one for one in (address.ipv4_mapped, address.sixtofour) if one is not None]
    if address.teredo is not None:
        found += address.teredo
    if address in _NAT64 or (int(address) >> 32 == 0 and int(address) > 1):
        found.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return tuple(found)


def resolve(host: str, port: int) -> list[str]:
    """Return the addresses of a host, within ten seconds.

    Raises:
        OSError: nobody knows it, or nobody answers.
    """
    told: list[list[str] | OSError] = []

    def ask() -> None:
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            told.append([str(one[4][0]) for one in found])
        except (OSError, UnicodeError) as error:
            told.append(error if isinstance(error, OSError) else OSError(str(error)))

    asking = threading.Thread(target=ask, name="cordee-resolve", daemon=True)
    asking.start()
    asking.join(_RESOLVE_S)
    answer = told[0] if told else TimeoutError(f"no name server has told the address of {host}")
    if isinstance(answer, OSError):
        raise answer
    return answer


def site_of(host: str) -> str:
    """Return whose a host is: the name that somebody has registered, as far as that can be told without a list; an address is its own."""
    host = host.rstrip(".").lower()
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        labels = host.split(".")
    many = len(labels) > 2 and len(labels[-1]) == 2 and labels[-2] in _SHARED
    return ".".join(labels[-3 if many else -2 :])
