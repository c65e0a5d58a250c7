"""Where the kernel has the threads of a process, and what a system call of its main thread waits for."""

from __future__ import annotations

import os
import platform
from typing import Any, Iterator, Optional

from cordee.machine import sysfs
from cordee.machine.processes.table import ProcessUsage, read_process, waits_in
from cordee.machine.processes.tree import tree_of

MOST_LISTED = 64
_MOST_PATH = 4096
# System calls whose first argument is a descriptor, and those that take a path, with the place of that argument. Numbers
# of arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h of the kernel.
_OF_DESCRIPTOR = {
    "x86_64": {0, 1, 17, 18, 19, 20, 16, 40, 42, 43, 44, 45, 46, 47, 72, 73, 74, 75, 232, 281, 285, 288, 295, 296},
    "aarch64": {22, 25, 29, 32, 47, 63, 64, 65, 66, 67, 68, 69, 70, 71, 82, 83, 202, 203, 206, 207, 211, 212, 242},
}
_OF_PATH = {
    "x86_64": {2: 0, 4: 0, 6: 0, 21: 0, 82: 0, 83: 0, 84: 0, 87: 0, 257: 1, 258: 1, 262: 1, 263: 1, 269: 1, 332: 1},
    "aarch64": {34: 1, 35: 1, 48: 1, 56: 1, 79: 1, 291: 1},
}


def state_of(pid: int) -> dict[str, Any]:
    """Return what the kernel says of a process, of its threads and of all processes below it."""
    process = read_process("/proc", pid)
    below = [read_process("/proc", child) for child in sorted(tree_of(pid).keys() - {pid})]
    return {
        "state": process.state if process is not None else "",
        "wchan": waits_in("/proc", pid),
        "syscall": sysfs.text(f"/proc/{pid}/syscall", 512),
        "open": waits_for(pid),
        "threads": list(_threads(pid)),
        "children": [_listed(child) for child in below[:MOST_LISTED] if child is not None],
    }


def waits_for(pid: int) -> Optional[str]:
    """Return the file, FIFO or socket in which the system call of a process stands, None where that is not to be seen."""
    told = (sysfs.text(f"/proc/{pid}/syscall", 512) or "").split()
    machine = platform.machine()
    if len(told) < 8 or not told[0].isdigit():  # it runs, or the kernel does not let us see it
        return None
    number, arguments = int(told[0]), [int(word, 16) for word in told[1:7]]
    try:
        if number in _OF_DESCRIPTOR.get(machine, ()):
            return os.readlink(f"/proc/{pid}/fd/{arguments[0]}")
        if number in _OF_PATH.get(machine, {}):
            return _text_at(pid, arguments[_OF_PATH[machine][number]])
    except (OSError, OverflowError):
        return None
    return None


def takes_signal(pid: int, number: int) -> bool:
    """Return whether a process has a handler for a signal."""
    for line in (sysfs.text(f"/proc/{pid}/status", 8192) or "").splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False


def open_files(pid: int) -> Iterator[str]:
    """Yield the paths of files that a process has open, without touching them."""
    for name in sysfs.names(f"/proc/{pid}/fd")[:256]:
        try:
            path = os.readlink(f"/proc/{pid}/fd/{name}")
        except OSError:
            continue
        if path.startswith("/") and not path.startswith(("/dev/", "/proc/", "/memfd:")):
            yield path


def _threads(pid: int) -> Iterator[dict[str, Any]]:
    for name in sysfs.names(f"/proc/{pid}/task")[:MOST_LISTED]:
        thread = read_process(f"/proc/{pid}/task", int(name))
        if thread is not None:
            about = _listed(thread, f"/proc/{pid}/task")
            yield {"tid": about.pop("pid"), **about}


def _listed(process: ProcessUsage, proc: str = "/proc") -> dict[str, Any]:
    return {
        "pid": process.pid,
        "name": process.name,
        "state": process.state,
        "wchan": waits_in(proc, process.pid),
    }


def _text_at(pid: int, address: int) -> Optional[str]:
    """Return the text at an address of a process, where the kernel lets us read its memory."""
    memory = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
    try:
        length = min(_MOST_PATH, 4096 - address % 4096)
        found = os.pread(memory, length, address)
        if b"\0" not in found:
            found += os.pread(memory, _MOST_PATH - length, address + length)
    finally:
        os.close(memory)
    return os.fsdecode(found.partition(b"\0")[0]) or None
