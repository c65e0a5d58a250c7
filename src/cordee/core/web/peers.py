"""Whose process is at the other end of a connection on this machine: the kernel's table of sockets knows.

A connection is asked about once, while it is open; what cannot be found out is nobody.
"""

from __future__ import annotations

import asyncio
import ipaddress
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

Address = tuple[str, int]
Ends = tuple[Address, Address]

_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_ESTABLISHED = "01"


class Peers:
    """The open connections of one server, with the user of each where that is known.

    Args:
        tables: the kernel's tables of TCP sockets.
    """

    def __init__(self, tables: Iterable[Path] = _TABLES) -> None:
        self._tables = tuple(tables)
        self._owners: dict[Ends, int | None] = {}
        self._open: set[Ends] = set()

    def opened(self, ends: Ends) -> None:
        """Note that a connection begins; the same ends may have been another user's before."""
        self._owners.pop(ends, None)
        self._open.add(ends)

    def closed(self, ends: Ends) -> None:
        """Forget a connection."""
        self._owners.pop(ends, None)
        self._open.discard(ends)

    async def owner(self, scope: Any) -> int | None:
        """Return the user id at the other end of a request's connection, None where it cannot be found."""
        if not scope.get("client") or not scope.get("server"):
            return None
        ends: Ends = (tuple(scope["client"]), tuple(scope["server"]))
        if ends in self._owners:
            return self._owners[ends]
        found = await asyncio.to_thread(socket_owner, *ends, self._tables)
        if ends in self._open:
            self._owners[ends] = found
        return found


def socket_owner(local: Address, remote: Address, tables: Iterable[Path] = _TABLES) -> int | None:
    """Return the user whose open socket goes from `local` to `remote` on this machine; None: there is none."""
    return socket_owners([(local, remote)], tables).get((local, remote))


def socket_owners(wanted: Iterable[Ends], tables: Iterable[Path] = _TABLES) -> dict[Ends, int]:
    """Return the users of those connections whose socket is open on this machine, by one look at the kernel's tables.

    A socket that its process has closed already is shown as root's: only one that is still held counts.
    """
    spelt = {tuple(_spelt(address, six) for address in ends): ends for ends in wanted for six in (False, True)}
    found: dict[Ends, int] = {}
    for table in tables:
        try:
            with open(table) as file:
                for line in file:
                    fields = line.split()
                    ends = spelt.get((fields[1], fields[2])) if len(fields) > 9 else None
                    if ends is not None and fields[3] == _ESTABLISHED and fields[9] != "0":
                        found.setdefault(ends, int(fields[7]))
        except (OSError, ValueError):
            continue
    return found


def _spelt(address: Address, six: bool) -> str:
    """Return an address as the kernel's tables spell it: words of 32 bits in the machine's byte order, in hex."""
    host = ipaddress.ip_address(address[0])
    if six and isinstance(host, ipaddress.IPv4Address):
        host = ipaddress.IPv6Address(f"::ffff:{host}")
    elif not six and isinstance(host, ipaddress.IPv6Address):
        if host.ipv4_mapped is None:
            return ""
        host = host.ipv4_mapped
    words = [host.packed[at : at + 4] for at in range(0, len(host.packed), 4)]
    return "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words) + f":{address[1]:04X}"
