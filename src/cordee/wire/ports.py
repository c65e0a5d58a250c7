"""Free ports, from below the range that the kernel gives to outgoing connections."""

from __future__ import annotations

import random
import socket
from typing import Union

from cordee.core.errors import WireError

PORTS = (20000, 32000)


def pick_port(host: str, low: int = PORTS[0], high: int = PORTS[1]) -> int:
    """Return a port that was free a moment ago, from below the range that the kernel gives to outgoing connections.

    Raises:
        WireError: all ports from `low` to `high` are taken, or `host` is not an address of this machine.
    """
    with bind(host, (low, high)) as probe:
        return int(probe.getsockname()[1])


def pick_ports(host: str, count: int) -> tuple[int, ...]:
    """Return so many different ports as by `pick_port`, and for the same errors."""
    ports: list[int] = []
    while len(ports) < count:
        port = pick_port(host)
        if port not in ports:
            ports.append(port)
    return tuple(ports)


def bind(host: str, port: Union[int, tuple[int, int], None]) -> socket.socket:
    """Return a socket bound to the port, or to a free one of the range."""
    low, high = (port, port) if isinstance(port, int) else port or PORTS
    candidates = list(range(low, high + 1))
    first = random.SystemRandom().randrange(len(candidates) or 1)
    candidates = candidates[first:] + candidates[:first]
    try:
        family, _, _, _, address = socket.getaddrinfo(host, low, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        problem = None
        for candidate in candidates:
            attempt = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
            try:
                if low == high:
                    attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                attempt.bind((address[0], candidate, *address[2:]))
                return attempt
            except OSError as error:
                attempt.close()
                problem = error
    except OSError as error:
        problem = error
    raise WireError(
        f"no port is free: {problem.strerror if problem else 'the range is empty'}",
        given=f"{host}, ports {low}-{high}",
        allowed="an address of this machine with a free port",
        next="give another range or address",
    )
