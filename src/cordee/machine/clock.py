"""Whether a node's clock is kept right: what chrony or the kernel says."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from typing import NamedTuple, Optional

# Source: the manual page adjtimex(2).
_STA_UNSYNC = 0x0040
_STA_NANO = 0x2000
_TIME_ERROR = 5
_CHRONY_PATIENCE_S = 1.0


class ClockFacts(NamedTuple):
    """What is known about a clock.

    Attributes:
        synchronized: whether a time server keeps it right.
        offset_s: how far it is from that server's time by its own estimate, positive when it is ahead; or None.
        source: who says so.
    """

    synchronized: bool
    offset_s: Optional[float]
    source: str


class _Timex(ctypes.Structure):
    _fields_ = [
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("constant", ctypes.c_long),
        ("precision", ctypes.c_long),
        ("tolerance", ctypes.c_long),
        ("seconds", ctypes.c_long),
        ("fraction", ctypes.c_long),
        ("rest", ctypes.c_byte * 256),
    ]


def read_clock(search_path: Optional[str] = None) -> Optional[ClockFacts]:
    """Return what chrony says where it is there and answers, else what the kernel says, else None.

    Args:
        search_path: where to look for `chronyc`, as PATH.
    """
    return _chrony(search_path) or _kernel()


def _chrony(search_path: Optional[str]) -> Optional[ClockFacts]:
    command = shutil.which("chronyc", path=search_path)
    if command is None:
        return None
    try:
        done = subprocess.run(
            [command, "-n", "tracking"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_CHRONY_PATIENCE_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    leap = re.search(r"^Leap status\s*:\s*(.+)$", done.stdout, re.MULTILINE)
    offset = re.search(r"^System time\s*:\s*([\d.]+) seconds (fast|slow) of NTP time", done.stdout, re.MULTILINE)
    if done.returncode != 0 or leap is None:
        return None
    ahead = float(offset.group(1)) * (1 if offset.group(2) == "fast" else -1) if offset else None
    return ClockFacts(leap.group(1).strip() != "Not synchronised", ahead, "chrony")


def _kernel() -> Optional[ClockFacts]:
    answer = _Timex()
    try:
        state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(answer))
    except (OSError, AttributeError):
        return None
    if state < 0:
        return None
    synchronized = state != _TIME_ERROR and not answer.status & _STA_UNSYNC
    # What the kernel still has to add to its clock: ahead is negative there.
    offset = -answer.offset / (1e9 if answer.status & _STA_NANO else 1e6)
    return ClockFacts(synchronized, offset if synchronized else None, "the kernel")
