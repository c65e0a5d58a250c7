"""How many wait for a run, known to each of them at no cost for the file system, so that together they ask no more than one.

`control/waiting` is kept open by those who wait: each has a slot of 16 bytes, little-endian: id u64, turn u64, and writes the
next turn every few seconds. Whose slot goes on changing waits; nobody's clock is compared with anybody else's. Zero is free.
"""

from __future__ import annotations

import os
import random
import struct
from contextlib import suppress
from pathlib import Path
from typing import Optional

from cordee.machine.foreign_files import regular_below

# Its folder opened, and the file.
JOIN_COST = 2.0
_SLOT = struct.Struct("<QQ")
_SLOTS = 256
_FREE = bytes(_SLOT.size)
# A command that is over at once takes no slot.
_JOIN_S, _TURN_S = 2.0, 15.0
# NFS shows others what was written after a minute at most.
_GONE_S = 120.0
_REFUSED_S, _MANY = 600.0, 10


class WaitingClients:
    """Takes a slot for one who waits, and counts the others.

    Who cannot write a slot, as in another person's run, is counted by nobody, and asks little: `count` is then as of many.

    Args:
        root: the run's folder.
        now: monotonic seconds.
    """

    def __init__(self, root: Path, now: float) -> None:
        self._root, self._due = root, now + _JOIN_S
        self._id, self._turn = random.SystemRandom().getrandbits(63) + 1, 0
        self._descriptor: Optional[int] = None
        self._slot, self._written = -1, _FREE
        self._seen: dict[int, tuple[bytes, float]] = {}
        self._count = 1

    def count(self, now: float) -> int:
        """Return how many wait, this one among them."""
        if now >= self._due:
            self._due = now + _TURN_S
            try:
                self._count = self._take_turn(now)
            except OSError:
                self.close()
                self._count, self._due = _MANY, now + _REFUSED_S
        return self._count

    def _take_turn(self, now: float) -> int:
        if self._descriptor is None:
            opener = regular_below(self._root)
            self._descriptor = opener(self._root / "control" / "waiting", os.O_RDWR | os.O_CREAT | os.O_DSYNC)
        slots = self._read(self._descriptor)
        if self._slot < 0 or slots[self._slot] != self._written:
            free = [number for number, slot in enumerate(slots) if slot == _FREE]
            self._slot = random.SystemRandom().choice(free or range(_SLOTS))
        self._turn += 1
        self._written = _SLOT.pack(self._id, self._turn)
        os.pwrite(self._descriptor, self._written, self._slot * _SLOT.size)
        return 1 + sum(self._waits(self._descriptor, number, slot, now) for number, slot in enumerate(slots))

    @staticmethod
    def _read(descriptor: int) -> list[bytes]:
        data = os.pread(descriptor, _SLOTS * _SLOT.size, 0).ljust(_SLOTS * _SLOT.size, b"\0")
        return [data[at : at + _SLOT.size] for at in range(0, len(data), _SLOT.size)]

    def _waits(self, descriptor: int, number: int, slot: bytes, now: float) -> bool:
        """Return whether somebody else waits in a slot: it has changed lately, or was not seen before; free it if nobody does.

        Whoever was only held up finds the slot free, and takes another one.
        """
        if slot == _FREE or _SLOT.unpack(slot)[0] == self._id:
            self._seen.pop(number, None)
            return False
        if number not in self._seen or self._seen[number][0] != slot:
            self._seen[number] = (slot, now)
        if now - self._seen[number][1] <= _GONE_S:
            return True
        os.pwrite(descriptor, _FREE, number * _SLOT.size)
        return False

    def close(self) -> None:
        """Give the slot back."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is None:
            return
        with suppress(OSError):
            if self._slot >= 0 and self._read(descriptor)[self._slot] == self._written:
                os.pwrite(descriptor, _FREE, self._slot * _SLOT.size)
        self._slot = -1
        with suppress(OSError):
            os.close(descriptor)

    def __del__(self) -> None:
        self.close()
