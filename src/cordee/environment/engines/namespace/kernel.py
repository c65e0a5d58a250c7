"""What Python 3.9 has no words for: the kernel's calls on namespaces, mounts and signals, through the C library."""

from __future__ import annotations

import ctypes
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

NEWNS, NEWUSER, NEWPID = 0x20000, 0x10000000, 0x20000000
RDONLY, NOSUID, NODEV, NOEXEC = 1, 2, 4, 8
REMOUNT, BIND, MOVE, REC = 32, 4096, 8192, 16384
UNBINDABLE, PRIVATE, SLAVE, SHARED = 1 << 17, 1 << 18, 1 << 19, 1 << 20
NOATIME, NODIRATIME, RELATIME, STRICTATIME = 1024, 2048, 1 << 21, 1 << 24
DETACH = 2
_PDEATHSIG_SET, _PDEATHSIG_GET, _DUMPABLE_SET = 1, 2, 4
_BLOCK, _SETMASK = 0, 2
# How a signal says that `queue_signal` sent it.
QUEUED = -1
_SIGSET_BYTES, _SIGINFO_BYTES = 128, 128
SIGKILL, SIGPIPE, SIGCHLD, SIGSTOP, SIGTSTP, SIGXFSZ = 9, 13, 17, 19, 20, 25

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mount.argtypes = (ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_ulong, ctypes.c_char_p)
_libc.prctl.argtypes = (ctypes.c_int, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong)
_libc.signal.argtypes = (ctypes.c_int, ctypes.c_void_p)
_libc.sigqueue.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_void_p)


class Refused(Exception):
    """The engine cannot do what it was asked; said as Cordée says errors: what, what was given, what to do next."""

    def __init__(self, text: str, given: Optional[str] = None, next: Optional[str] = None) -> None:
        super().__init__(text)
        self.text = text
        self.given = given
        self.next = next

    def words(self) -> str:
        """Return the error as lines for a person."""
        lines = [self.text]
        if self.given is not None:
            lines.append(f"  given:   {self.given}")
        if self.next:
            lines.append(f"  next:    {self.next}")
        return "\n".join(lines)


def _done(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)
    return result


def _bytes(text: Optional[str]) -> Optional[bytes]:
    return None if text is None else os.fsencode(text)


def mount(source: Optional[str], target: str, kind: Optional[str] = None, flags: int = 0, data: str = "") -> None:
    """Mount, as mount(2).

    Raises:
        OSError: the kernel refused; its file name is the target.
    """
    given = _bytes(data) if data else None
    _done(_libc.mount(_bytes(source), os.fsencode(target), _bytes(kind), flags, given), target)


def unmount(target: str) -> None:
    """Take a mount away at once; what still uses it keeps it until it lets go.

    Raises:
        OSError: it is no mount, or it is locked.
    """
    _done(_libc.umount2(os.fsencode(target), DETACH), target)


def pivot(folder: str) -> None:
    """Make `folder` the root and leave the old one on top of it, to be unmounted.

    Raises:
        OSError: `folder` is no mount, or the root is an initial RAM disk.
    """
    os.chdir(folder)
    _done(_libc.pivot_root(b".", b"."), folder)


def unshare(flags: int) -> None:
    """Leave namespaces, as unshare(2).

    Raises:
        OSError: not permitted, or there are too many.
    """
    _done(_libc.unshare(flags), "unshare")


def enter_namespace(descriptor: int, kind: int) -> None:
    """Join the namespace behind an open file.

    Raises:
        OSError: not permitted.
    """
    _done(_libc.setns(descriptor, kind), "setns")


def die_with_parent(number: int = SIGKILL) -> None:
    """Have this process sent a signal when the thread that started it ends; 0: none."""
    _libc.prctl(_PDEATHSIG_SET, number, 0, 0, 0)


def dies_with_parent() -> int:
    """Return the signal that this process gets when its parent ends; 0: none."""
    number = ctypes.c_int(0)
    _libc.prctl(_PDEATHSIG_GET, ctypes.addressof(number), 0, 0, 0)
    return number.value


def let_own_processes_look() -> None:
    """Let processes of the same user open this one's namespaces again, which new rights had ended."""
    _libc.prctl(_DUMPABLE_SET, 1, 0, 0, 0)


def block_signals() -> bytes:
    """Block every signal and return the mask that was set."""
    every, before = ctypes.create_string_buffer(_SIGSET_BYTES), ctypes.create_string_buffer(_SIGSET_BYTES)
    _libc.sigfillset(every)
    _libc.sigprocmask(_BLOCK, every, before)
    return before.raw


def restore_ignored() -> None:
    """Set to default the signals that Python ignores, before a command is executed."""
    for number in (SIGPIPE, SIGXFSZ):
        default_signal(number)


def set_signals(mask: bytes) -> None:
    """Set the mask of blocked signals that `block_signals` returned."""
    _libc.sigprocmask(_SETMASK, mask, None)


def default_signal(number: int) -> None:
    """Let a signal do what it does by default."""
    _libc.signal(number, None)


def wait_signal() -> tuple[int, int]:
    """Wait for a blocked signal; return (number, code): the code is at most 0 when a process sent it, -1 by `queue_signal`."""
    every, info = ctypes.create_string_buffer(_SIGSET_BYTES), ctypes.create_string_buffer(_SIGINFO_BYTES)
    _libc.sigfillset(every)
    while True:
        number = _libc.sigwaitinfo(every, info)
        if number > 0:
            return number, int.from_bytes(info.raw[8:12], "little", signed=True)


def queue_signal(pid: int, number: int) -> None:
    """Send a signal that tells itself apart from those that others send; a process that is gone is no fault."""
    _libc.sigqueue(pid, number, None)


def exit_code(status: int) -> int:
    """Return the exit code of a wait status; 128 and the signal for one that was killed."""
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def end(children: list[int]) -> None:
    """Kill children of this process and bury them."""
    for pid in children:
        os.kill(pid, SIGKILL)
        os.waitpid(pid, 0)
