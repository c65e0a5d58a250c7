"""When a process ends that is nobody's child here, and how, as far as the kernel tells."""

from __future__ import annotations

import fcntl
import os
import select
import struct
from typing import NamedTuple, Optional

from cordee.machine.processes.tree import is_same_process
from cordee.telemetry.node.record.detach import above_streams

# linux/pidfd.h: PIDFD_GET_INFO of a struct pidfd_info of its first size, and the bit that asks for the exit code (6.15).
_GET_INFO = 0xC0000000 | 64 << 16 | 0xFF << 8 | 11
_INFO_EXIT = 1 << 3
_INFO_BYTES = 64
_EXIT_CODE_AT = 60
_EXIT_CODE_FIELD = 49  # of what follows the name in /proc/<pid>/stat
_REAP_MS = 30


class ProcessEnding(NamedTuple):
    """How a process ended: an exit code or a signal; both None where nobody could see it."""

    exit_code: Optional[int] = None
    signal: Optional[int] = None


class Followed:
    """A process that is followed from its registration to its end.

    Args:
        pid, start_ticks: which process; another that got its pid is not followed.

    Attributes:
        descriptor: readable when the process has ended; None on kernels before 5.3: `ended` has to be asked.
    """

    def __init__(self, pid: int, start_ticks: int) -> None:
        self.pid = pid
        self.start_ticks = start_ticks
        self.descriptor: Optional[int] = None
        try:
            self.descriptor = above_streams(os.pidfd_open(pid))
        except (AttributeError, OSError):
            pass
        if not is_same_process(pid, start_ticks) and self._stat() is None:
            self.close()

    @property
    def ended(self) -> bool:
        """Whether it has ended, reaped or not."""
        if self.descriptor is not None:
            return bool(_events(self.descriptor, 0))
        return not is_same_process(self.pid, self.start_ticks)

    def ending(self) -> ProcessEnding:
        """Return how it ended, once it has: from its last line in /proc, or from what the kernel keeps of it (6.15)."""
        status = self._stat()
        if not status and self.descriptor is not None:
            # What is kept becomes readable when the parent has waited for the process.
            _events(self.descriptor, _REAP_MS, select.POLLHUP)
            kept = _kept(self.descriptor)
            status = kept if kept is not None else status
        if status is None:
            return ProcessEnding()
        if os.WIFSIGNALED(status):
            return ProcessEnding(signal=os.WTERMSIG(status))
        return ProcessEnding(exit_code=os.WEXITSTATUS(status))

    def close(self) -> None:
        """Let go of the process."""
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None

    def _stat(self) -> Optional[int]:
        """Return the wait status of a process that nobody has waited for yet."""
        try:
            with open(f"/proc/{self.pid}/stat", "rb") as file:
                text = file.read()
        except OSError:
            return None
        fields = text[text.rfind(b")") + 2 :].split()
        if fields[0] not in (b"Z", b"X") or int(fields[19]) != self.start_ticks:
            return None
        return int(fields[_EXIT_CODE_FIELD])


def _events(descriptor: int, timeout_ms: int, events: int = select.POLLIN) -> int:
    poll = select.poll()
    poll.register(descriptor, events)
    found = poll.poll(timeout_ms)
    return found[0][1] if found else 0


def _kept(descriptor: int) -> Optional[int]:
    """Return the wait status that the kernel keeps for holders of a pidfd."""
    asked = struct.pack("<Q", _INFO_EXIT).ljust(_INFO_BYTES, b"\0")
    try:
        answer = fcntl.ioctl(descriptor, _GET_INFO, asked)
    except OSError:
        return None
    if not struct.unpack_from("<Q", answer)[0] & _INFO_EXIT:
        return None
    return int(struct.unpack_from("<i", answer, _EXIT_CODE_AT)[0])
