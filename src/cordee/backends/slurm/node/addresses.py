"""Where a node can be reached by others."""

from __future__ import annotations

import contextlib
import fcntl
import socket
import struct
from typing import Iterator, Optional

from cordee.backends.slurm.node.commands import SlurmError, parse_records, run_command
from cordee.runs.folder import say

_SIOCGIFADDR = 0x8915
_ASK_S = 10.0
# One for documents, which a default route leads to, and one of each private network, where there is none.
_ELSEWHERE = ("192.0.2.1", "10.255.255.254", "172.31.255.254", "192.168.255.254")


def reachable_address(node: Optional[str], interface: Optional[str] = None) -> str:
    """Return the address of this node on the network interface, or the one that its own name leads to, or that it sends from.

    Args:
        node: the name that Slurm gives to this node; None: it is none of Slurm's.
        interface: the network interface that the profile names.
    """
    for address in _addresses(interface, node):
        if _can_listen(address):
            return address
    return "127.0.0.1"


def _addresses(interface: Optional[str], node: Optional[str]) -> Iterator[str]:
    """Yield where this node might be reached, the best first."""
    if interface:
        address = _address_of_interface(interface)
        if address is None:
            say(
                f"cordee: the profile's network_interface {interface} has no IPv4 address on {node or socket.gethostname()}"
            )
        else:
            yield address
    if node:
        yield from (address for address in _resolve(node) if not address.startswith("127."))
        try:
            shown = parse_records(run_command(["scontrol", "show", "node", "--oneliner", node], timeout_s=_ASK_S))
        except SlurmError:
            shown = []
        for record in shown:
            yield from _resolve(record.get("NodeAddr", ""))
    yield from (address for address in _resolve(socket.gethostname()) if not address.startswith("127."))
    # Debian gives the name to loopback. Nothing is sent: the kernel chooses the address that it would send from.
    for there in _ELSEWHERE:
        with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((there, 9))
            yield str(probe.getsockname()[0])


def _resolve(name: str) -> list[str]:
    try:
        return list(dict.fromkeys(str(found[4][0]) for found in socket.getaddrinfo(name, None, socket.AF_INET)))
    except (OSError, UnicodeError):
        return []


def _can_listen(address: str) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True


def _address_of_interface(interface: str) -> Optional[str]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, struct.pack("256s", interface.encode()[:15]))
        except OSError:
            return None
    return socket.inet_ntoa(answer[20:24])
