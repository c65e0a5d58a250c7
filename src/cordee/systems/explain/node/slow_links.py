"""Peers for which data waits on this node: queues and repeats of its TCP connections, as the kernel's `sock_diag` tells them."""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import struct
import time
from typing import Iterator, NamedTuple, Optional

from cordee.wire.messages import SlowLink

_SOCK_DIAG, _BY_FAMILY, _DONE, _ERROR = 4, 20, 3, 2
_REQUEST, _DUMP = 1, 0x300
_ESTABLISHED, _TCP = 1, 6
_INFO = 2  # the attribute that holds `struct tcp_info`, and the request's bit for it
_HEADER = struct.Struct("=IHHII")
_ASKED = struct.Struct("=BBBxI48x")
_TOLD = struct.Struct("=BBBB2H16s16sI8xIIIII")
_ATTRIBUTE = struct.Struct("=HH")
_REPEATS_AT = 100  # of `tcpi_total_retrans` in `struct tcp_info`
_BUFFER = 1 << 17
_MOST_PARTS = 4096
_MOST_LINKS = 32
# A look costs at most this share of a core: with many connections there are fewer looks.
_MOST_SHARE, _LEAST_APART_S = 0.001, 2.0


class PeerConnection(NamedTuple):
    """One open TCP connection of this user.

    Attributes:
        key: tells it from all others, also from one that has the same ends later.
        address: of the peer.
        queued_bytes: written, and not acknowledged.
        repeats: segments that were sent again since it was opened.
    """

    key: tuple[int, int]
    address: str
    queued_bytes: int
    repeats: int


class SlowLinks:
    """What is seen of the connections of this user in a window; those of an address with itself are left out.

    Args:
        loopback: whether those within this node are told too.
    """

    def __init__(self, loopback: bool = False) -> None:
        self._loopback = loopback
        self._socket: Optional[socket.socket] = None
        self._failed = False
        self._next_at = 0.0
        self._repeats: Optional[dict[tuple[int, int], int]] = None
        self._queued: dict[str, int] = {}
        self._again: dict[str, int] = {}

    def look(self, now: float) -> None:
        """Look, unless the last look was a moment ago; where the kernel does not tell, never again."""
        if self._failed or now < self._next_at:
            return
        began = time.thread_time()
        try:
            self._take(list(self._connections()))
        except (OSError, ValueError, struct.error):
            self.close()
            self._failed = True
        self._next_at = now + max(_LEAST_APART_S, (time.thread_time() - began) / _MOST_SHARE)

    def taken(self) -> tuple[SlowLink, ...]:
        """Return the peers for which something waited or was sent again in the window, the worst first; another one begins."""
        found = [
            SlowLink(address, self._queued.get(address, 0), self._again.get(address, 0))
            for address in self._queued.keys() | self._again.keys()
        ]
        self._queued, self._again = {}, {}
        found.sort(key=lambda link: (-link.retransmits, -link.queued_bytes, link.address))
        return tuple(found[:_MOST_LINKS])

    def close(self) -> None:
        """Let go of the socket."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _take(self, connections: list[PeerConnection]) -> None:
        before, self._repeats = self._repeats, {one.key: one.repeats for one in connections}
        for one in connections:
            if one.queued_bytes:
                self._queued[one.address] = max(one.queued_bytes, self._queued.get(one.address, 0))
            grown = one.repeats - before.get(one.key, 0) if before is not None else 0
            if grown > 0:
                self._again[one.address] = self._again.get(one.address, 0) + grown

    def _connections(self) -> Iterator[PeerConnection]:
        if self._socket is None:
            self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _SOCK_DIAG)
            self._socket.settimeout(1.0)
        user = os.getuid()
        for family in (socket.AF_INET, socket.AF_INET6):
            yield from (one for told in self._told(family) if (one := self._connection(told, user)) is not None)

    def _told(self, family: int) -> Iterator[bytes]:
        """Yield what the kernel tells of each open connection of an address family."""
        assert self._socket is not None
        asked = _ASKED.pack(family, _TCP, 1 << (_INFO - 1), 1 << _ESTABLISHED)
        size = _HEADER.size + len(asked)
        self._socket.sendto(_HEADER.pack(size, _BY_FAMILY, _REQUEST | _DUMP, 0, 0) + asked, (0, 0))
        for _ in range(_MOST_PARTS):
            part = self._socket.recv(_BUFFER)
            at = 0
            while at + _HEADER.size <= len(part):
                length, kind = _HEADER.unpack_from(part, at)[:2]
                if kind == _DONE:
                    return
                if kind == _ERROR or length < _HEADER.size:
                    raise OSError(errno.EPROTO, "the kernel does not tell of connections")
                yield part[at + _HEADER.size : at + length]
                at += (length + 3) & ~3
        raise OSError(errno.EPROTO, "the kernel tells of no end of connections")

    def _connection(self, told: bytes, user: int) -> Optional[PeerConnection]:
        """Return a connection of this user to another node, None for any other."""
        family, _, _, _, _, _, own, peer, _, _, _, queued, owner, inode = _TOLD.unpack_from(told)
        if owner != user or own == peer:
            return None
        address = ipaddress.ip_address(peer[:4] if family == socket.AF_INET else peer)
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        if address.is_loopback and not self._loopback:
            return None
        return PeerConnection((inode, int.from_bytes(told[44:52], "little")), str(address), queued, _repeats(told))


def _repeats(told: bytes) -> int:
    at = _TOLD.size
    while at + _ATTRIBUTE.size <= len(told):
        length, kind = _ATTRIBUTE.unpack_from(told, at)
        if kind == _INFO and length >= _ATTRIBUTE.size + _REPEATS_AT + 4:
            return int.from_bytes(told[at + _ATTRIBUTE.size + _REPEATS_AT :][:4], "little")
        at += max(4, (length + 3) & ~3)
    return 0
