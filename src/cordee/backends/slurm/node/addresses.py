"""Where a node can be reached by others."""

from __future__ import annotations

import fcntl
import socket
import struct
from typing import Iterator, Optional

from cordee.backends.slurm.node.commands import SlurmError, parse_records, run_command
from cordee.runs.folder import say

_SIOCGIFADDR = 0x8915
_ASK_S = 10.0


def reachable_address(node: str, interface: Optional[str] = None) -> str:
    """Return the address of this node on the network interface, or the one that its own name leads to.

    Args:
        node: the name that Slurm gives to this node.
        interface: the network interface that the profile names.
    """
    for address in _addresses(interface, node):
        if _can_listen(address):
            return address
    return "127.0.0.1"


def _addresses(interface: Optional[str], node: str) -> Iterator[str]:
    """Yield where this node might be reached, the best first."""
    if interface:
        address = _address_of_interface(interface)
        if address is None:
            say(f"cordee: the profile's network_interface {interface} has no IPv4 address on {node}")
        else:
            yield address
    yield from (address for address in _resolve(node) if not address.startswith("127."))
    try:
        shown = parse_records(run_command(["scontrol", "show", "node", "--oneliner", node], timeout_s=_ASK_S))
    except SlurmError:
        shown = []
    for record in shown:
        yield from _resolve(record.get("NodeAddr", ""))
    yield from (address for address in _resolve(socket.gethostname()) if not address.startswith("127."))


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
