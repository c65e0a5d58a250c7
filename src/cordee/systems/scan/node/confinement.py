"""What a process that looks at untrusted files gives up before it sees the first: it opens nothing, starts nothing, connects to nothing.

Linux keeps to a list of system calls that may be made from then on (seccomp); all others fail. Where that is not to be had, limits of
memory, files and processes remain, and the scanner says that it was not confined.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import resource
import struct

_ALLOW, _DENY, _KILL = 0x7FFF0000, 0x00050001, 0x80000000
_LOAD, _EQUAL, _RETURN = 0x20, 0x15, 0x06
_SET_SECCOMP, _FILTER, _NO_NEW_PRIVILEGES, _DUMPABLE = 22, 2, 38, 4
# What Python needs to read descriptors that it has, to compute, to answer on a socket, and to end. From the kernel's tables.
_CALLS = {
    "x86_64": (
        0xC000003E,
        # read write close fstat lseek mmap mprotect munmap brk rt_sigaction rt_sigprocmask rt_sigreturn pread64 readv writev
        # sched_yield mremap madvise getpid sendto recvfrom sendmsg recvmsg exit fcntl sigaltstack gettid futex clock_gettime
        # clock_nanosleep exit_group tgkill restart_syscall poll getrandom rseq membarrier
        (0, 1, 3, 5, 8, 9, 10, 11, 12, 13, 14, 15, 17, 19, 20, 24, 25, 28, 39, 44, 45, 46, 47, 60, 72, 131, 186, 202, 228, 230, 231,
         234, 219, 7, 318, 334, 324),
    ),
    "aarch64": (
        0xC00000B7,
        (63, 64, 57, 80, 62, 222, 226, 215, 214, 134, 135, 139, 67, 65, 66, 124, 216, 233, 172, 206, 207, 211, 212, 93, 25, 132, 178,
         98, 113, 115, 94, 131, 128, 73, 278, 293, 283),
    ),
}  # fmt: skip


class _Instruction(ctypes.Structure):
    _fields_ = [("code", ctypes.c_ushort), ("yes", ctypes.c_ubyte), ("no", ctypes.c_ubyte), ("k", ctypes.c_uint)]


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.POINTER(_Instruction))]


def limit(memory_bytes: int, file_bytes: int = 0) -> None:
    """Bound this process's memory and the files that it writes to, and have it leave no core."""
    for what, most in (
        (resource.RLIMIT_AS, memory_bytes),
        (resource.RLIMIT_FSIZE, file_bytes),
        (resource.RLIMIT_CORE, 0),
    ):
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(what, (most, most))


def confine() -> bool:
    """Let this process open, start and reach nothing from now on; return whether the kernel does that here."""
    known = _CALLS.get(platform.machine())
    if known is None or struct.calcsize("P") != 8:
        return False
    architecture, calls = known
    rules = [(_LOAD, 0, 0, 4), (_EQUAL, 1, 0, architecture), (_RETURN, 0, 0, _KILL), (_LOAD, 0, 0, 0)]
    rules += [(_EQUAL, len(calls) - at, 0, call) for at, call in enumerate(calls)]
    rules += [(_RETURN, 0, 0, _DENY), (_RETURN, 0, 0, _ALLOW)]
    program = _Program(len(rules), (_Instruction * len(rules))(*(_Instruction(*rule) for rule in rules)))
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(_DUMPABLE, 0, 0, 0, 0)
        if libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) or libc.prctl(_SET_SECCOMP, _FILTER, ctypes.byref(program), 0, 0):
            return False
    except (OSError, AttributeError):
        return False
    try:
        os.close(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        return True
    return False
