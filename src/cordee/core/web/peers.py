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
        self._asked: dict[Ends, asyncio.Future[int | None]] = {}
        self._looked_for: dict[Ends, asyncio.Future[int | None]] = {}
        self._look: asyncio.Task[None] | None = None

    def opened(self, ends: Ends) -> None:
        """Note that a connection begins; the same ends may have been another user's before."""
        self._owners.pop(ends, None)
        self._open.add(ends)

    def closed(self, ends: Ends) -> None:
        """Forget a connection."""
        self._owners.pop(ends, None)
        self._open.discard(ends)
        for waiting in (self._asked, self._looked_for):
            if ends in waiting:
                _answer(waiting.pop(ends), None)

    async def owner(self, scope: Any) -> int | None:
        """Return the user id at the other end of a request's connection, None where it cannot be found."""
        if not scope.get("client") or not scope.get("server"):
            return None
        ends: Ends = (tuple(scope["client"]), tuple(scope["server"]))
        if ends in self._owners:
            return self._owners[ends]
        if ends not in self._asked:
            self._asked[ends] = asyncio.get_running_loop().create_future()
        answer = self._asked[ends]
        if self._look is None:
            self._look = asyncio.create_task(self._look_up())
        return await asyncio.shield(answer)

    async def _look_up(self) -> None:
        """Look into the kernel's tables for all who have asked, and again for who asked meanwhile: the tables are as long as
        there are connections, and a look for each of a thousand would take many seconds.
        """
        try:
            while self._asked:
                self._looked_for, self._asked = self._asked, {}
                found = await asyncio.to_thread(socket_owners, list(self._looked_for), self._tables)
                for ends, answer in self._looked_for.items():
                    if ends in self._open:
                        self._owners[ends] = found.get(ends)
                    _answer(answer, found.get(ends))
        finally:
            self._look = None
            for answer in (*self._looked_for.values(), *self._asked.values()):
                _answer(answer, None)
            self._looked_for, self._asked = {}, {}


def _answer(asked: asyncio.Future[int | None], owner: int | None) -> None:
    if not asked.done():
        asked.set_result(owner)


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
