"""What a process that does not end is doing, for the person who must find out why."""

from __future__ import annotations

import faulthandler
import os
import select
import signal
import time

_PATIENCE_S = 0.3
_MOST_BYTES = 8192
_MOST_PROCESSES = 8


def listen(descriptor: int) -> None:
    """Have this process write the Python stacks of its threads to `descriptor` at SIGUSR2."""
    faulthandler.register(signal.SIGUSR2, descriptor, all_threads=True)


def stack_of(pid: int, answers: int) -> list[str]:
    """Return what a process and all below it are doing, one line each: Python frames where it `listen`s, and the kernel's word.

    Args:
        pid: the process.
        answers: the reading end of what it listens with.
    """
    return _python_frames(pid, answers) + doing(pid)


def doing(pid: int) -> list[str]:
    """Return what the kernel says a process and all below it are doing, one line each."""
    return [_kernel_word(found) for found in _family(pid)]


def _python_frames(pid: int, answers: int) -> list[str]:
    try:
        os.kill(pid, signal.SIGUSR2)
    except OSError:
        return []
    output, deadline = b"", time.monotonic() + _PATIENCE_S
    while len(output) < _MOST_BYTES:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([answers], [], [], left)[0]:
            break
        part = os.read(answers, _MOST_BYTES)
        if not part:
            break
        output += part
        deadline = min(deadline, time.monotonic() + 0.05)
    return [line.strip() for line in output.decode(errors="replace").splitlines() if line.strip().startswith("File")]


def _family(pid: int) -> list[int]:
    found: list[int] = []
    waiting = [pid]
    while waiting and len(found) < _MOST_PROCESSES:
        current = waiting.pop(0)
        if _state(current) not in "ZX":
            found.append(current)
        try:
            with open(f"/proc/{current}/task/{current}/children") as file:
                waiting += [int(word) for word in file.read().split()]
        except (OSError, ValueError):
            continue
    return found


def _kernel_word(pid: int) -> str:
    command = _read(f"/proc/{pid}/cmdline").replace("\0", " ").strip() or "?"
    state = _state(pid)
    where = _read(f"/proc/{pid}/wchan") or "?"
    kernel = "; ".join(_read(f"/proc/{pid}/stack").splitlines()[:6])
    return f"process {pid} ({command[:200]}) state {state} in {where}" + (f": {kernel}" if kernel else "")


def _state(pid: int) -> str:
    """Return the state's letter; X when the process is gone."""
    status = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return status[0] if status else "X"


def _read(path: str) -> str:
    try:
        with open(path, errors="replace") as file:
            return file.read(4096).strip()
    except OSError:
        return ""
