"""Ending with whoever started this process."""

from __future__ import annotations

import os
import signal
from typing import Any, Optional

_PR_SET_PDEATHSIG = 1

_prctl: Any = None


def prctl() -> Any:
    """Return the system call `prctl` of this process."""
    global _prctl
    if _prctl is None:
        import ctypes  # most processes do without

        _prctl = ctypes.CDLL(None, use_errno=True).prctl
    return _prctl


def die_with_parent(parent: Optional[int] = None, number: int = signal.SIGKILL) -> None:
    """Have the kernel send this process a signal when its parent dies; may be called between fork and exec.

    Args:
        parent: its pid; where that is not the parent any more, the signal comes at once.
        number: of the signal.
    """
    prctl()(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)
    if parent is not None and os.getppid() != parent:
        os.kill(os.getpid(), number)
