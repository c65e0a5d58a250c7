"""TCP connections of this network namespace with the bytes that each has moved, as the kernel tells them by sock_diag(7)."""

from __future__ import annotations

import errno
import socket
import struct
from typing import Collection, Iterator, NamedTuple, Optional, Union

_NETLINK_SOCK_DIAG = 4
_BY_FAMILY, _DONE, _ERROR = 20, 3, 2
_DUMP = 0x301  # NLM_F_REQUEST | NLM_F_DUMP
# Neither those that wait for others, nor those that are over but for late packets, nor those that nobody has taken.
_OF_NOBODY = (1 << 10) | (1 << 6) | (1 << 12)
_INFO, _CGROUP = 2, 21  # INET_DIAG_INFO, INET_DIAG_CGROUP_ID
_WITH_INFO = 1 << (_INFO - 1)
_TCP_ENDED = (1 << 0) | (1 << 2)  # SKNLGRP_INET_TCP_DESTROY, SKNLGRP_INET6_TCP_DESTROY
_HEAD = struct.Struct("=IHHII")
_ATTRIBUTE = struct.Struct("=HH")
_ID = struct.Struct("!HH16s16s")
_COOKIE = struct.Struct("=II")
_MESSAGE_BYTES = 72  # struct inet_diag_msg
_MOVED = struct.Struct("=QQ")
_MOVED_AT = 120  # tcpi_bytes_acked and tcpi_bytes_received in struct tcp_info
_MAPPED = b"\0" * 10 + b"\xff\xff"
_BUFFER_BYTES = 1 << 20
_ANSWER_S = 5.0


class TcpConnection(NamedTuple):
    """One connection.

    Attributes:
        cookie: the kernel's number of it, never used twice.
        inode: of its socket; 0 once no process has it open.
        remote: the address at the other end; IPv4 in IPv6 is told as IPv4.
        port: at the other end.
        sent, received: payload that the other end has acknowledged, and that arrived; in bytes; None: this kernel does not tell.
        cgroup: number of the control group (version 2) that made it, None where it is not told.
        own_port: at this end.
    """

    cookie: int
    inode: int
    remote: str
    port: int
    sent: Optional[int]
    received: Optional[int]
    cgroup: Optional[int] = None
    own_port: int = 0


class TcpConnections:
    """The connections of the namespace that this is made in; no rights are needed.

    Attributes:
        missed: how often the kernel told of more ended connections than could be kept.

    Raises:
        OSError: the kernel has no sock_diag.
    """

    def __init__(self) -> None:
        self.missed = 0
        self._asking = _netlink()
        self._ended: Optional[socket.socket] = None
        self._asking.settimeout(_ANSWER_S)
        try:
            ended = self._ended = _netlink()
            ended.bind((0, _TCP_ENDED))
            ended.setblocking(False)
            ended.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * _BUFFER_BYTES)
        except OSError:  # what is sent between the last look and the end is not known then
            if self._ended is not None:
                self._ended.close()
            self._ended = None

    @property
    def hears_ends(self) -> bool:
        """Whether the kernel tells what a connection has moved when it ends."""
        return self._ended is not None

    def living(self) -> list[TcpConnection]:
        """Return all connections that are not over.

        Raises:
            OSError: the kernel does not answer.
        """
        return [one for family in (socket.AF_INET, socket.AF_INET6) for one in self._dump(family)]

    def ended(self) -> list[TcpConnection]:
        """Return the connections that have ended since this was called before."""
        found: list[TcpConnection] = []
        while self._ended is not None:
            try:
                message = self._ended.recv(_BUFFER_BYTES)
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                self.missed += 1
                continue
            found += (_connection(body) for kind, body in _messages(message) if kind == _BY_FAMILY)
        return found

    def close(self) -> None:
        """Close both sockets."""
        self._asking.close()
        if self._ended is not None:
            self._ended.close()

    def _dump(self, family: int) -> Iterator[TcpConnection]:
        states = 0x1FFF & ~_OF_NOBODY
        body = struct.pack("=BBBBI", family, socket.IPPROTO_TCP, _WITH_INFO, 0, states) + bytes(48)
        self._asking.send(_HEAD.pack(_HEAD.size + len(body), _BY_FAMILY, _DUMP, 1, 0) + body)
        while True:
            for kind, answer in _messages(self._asking.recv(_BUFFER_BYTES)):
                if kind == _DONE:
                    return
                if kind == _ERROR:
                    number = -struct.unpack_from("=i", answer)[0]
                    raise OSError(number, "sock_diag refuses")
                yield _connection(answer)


def _netlink() -> socket.socket:
    return socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_SOCK_DIAG)


def _messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    offset = 0
    while offset + _HEAD.size <= len(data):
        length, kind, _, _, _ = _HEAD.unpack_from(data, offset)
        if length < _HEAD.size:
            return
        yield kind, data[offset + _HEAD.size : offset + length]
        offset += (length + 3) & ~3


def _connection(body: bytes) -> TcpConnection:
    family = body[0]
    own_port, port, _, remote = _ID.unpack_from(body, 4)
    low, high = _COOKIE.unpack_from(body, 44)
    (inode,) = struct.unpack_from("=I", body, 68)
    sent = received = cgroup = None
    offset = _MESSAGE_BYTES
    while offset + _ATTRIBUTE.size <= len(body):
        length, kind = _ATTRIBUTE.unpack_from(body, offset)
        if length < _ATTRIBUTE.size:
            break
        if kind == _INFO and length >= _ATTRIBUTE.size + _MOVED_AT + _MOVED.size:
            sent, received = _MOVED.unpack_from(body, offset + _ATTRIBUTE.size + _MOVED_AT)
        elif kind == _CGROUP and length >= _ATTRIBUTE.size + 8:
            (cgroup,) = struct.unpack_from("=Q", body, offset + _ATTRIBUTE.size)
        offset += (length + 3) & ~3
    return TcpConnection(low | high << 32, inode, _address(family, remote), port, sent, received, cgroup, own_port)


def _address(family: int, raw: bytes) -> str:
    if family == socket.AF_INET:
        return socket.inet_ntop(family, raw[:4])
    if raw[:12] == _MAPPED:
        return socket.inet_ntop(socket.AF_INET, raw[12:])
    return socket.inet_ntop(socket.AF_INET6, raw)


def connected_to(ports: Collection[int], process: Union[int, str] = "self") -> dict[int, set[int]]:
    """Return who is connected to these ports of this machine: for each, the ports at the other ends, whatever made the connection.

    Args:
        process: whose network namespace counts.
    """
    wanted = {f"{port:04X}": port for port in ports}
    found: dict[int, set[int]] = {port: set() for port in ports}
    for table in ("tcp", "tcp6"):
        try:
            with open(f"/proc/{process}/net/{table}") as lines:
                next(lines, None)
                for line in lines:
                    words = line.split()
                    port = wanted.get(words[1].rpartition(":")[2])
                    if port is not None and words[3] == "01":
                        found[port].add(int(words[2].rpartition(":")[2], 16))
        except OSError:
            continue
    return found
