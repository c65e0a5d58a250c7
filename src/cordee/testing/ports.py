"""Rows of free ports, reserved against others that start at the same moment."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from cordee.testing.daemons import DisposableError

# Below the ports that runs choose for themselves, and below those of outgoing connections.
LOWEST, HIGHEST = 12000, 19999
_SLOT = 64


@contextmanager
def free_ports(count: int, base: int | None = None) -> Iterator[int]:
    """Give the first of `count` free ports in a row; until the block ends no other disposable scheduler on this machine gets them.

    Args:
        count: how many.
        base: the first port, when a person has chosen it.

    Raises:
        DisposableError: they are not free, or no row of that length is.
    """
    slots = range(LOWEST, HIGHEST + 1, _SLOT)
    starts = [base] if base is not None else random.SystemRandom().sample(slots, len(slots))
    for start in starts:
        if start + count - 1 > (HIGHEST if base is None else 65535):
            continue
        with ExitStack() as held:
            # A port of a living one is free for the seconds that its daemon is stopped: none of its neighbours is.
            needed = count if base is not None else -(-count // _SLOT) * _SLOT
            if _reserve(held, start, count) and all(_is_free(port) for port in range(start, start + needed)):
                yield start
                return
    where = f"{base}-{base + count - 1}" if base is not None else f"{count} in a row of {LOWEST}-{HIGHEST}"
    raise DisposableError("the ports are taken", given=where, next="give another base port, or end what uses them")


def _reserve(held: ExitStack, start: int, count: int) -> bool:
    """Hold the slots that the ports lie in: abstract sockets are taken by one process and vanish with it."""
    for slot in range(start // _SLOT, (start + count - 1) // _SLOT + 1):
        claim = held.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC))
        try:
            claim.bind(f"\0cordee-testing-{slot}")
        except OSError:
            return False
    return True


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True
