"""What Python 3.9 has no words for: the kernel's calls on namespaces and mounts, through the C library.

`_ctypes` and `_signal` are what `ctypes` and `signal` are made of. The modules around them take 12 ms to import, as long as
everything else that the engine does before a command.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import os
from _ctypes import FUNCFLAG_CDECL, FUNCFLAG_USE_ERRNO, CFuncPtr, _SimpleCData, byref, dlopen, dlsym, get_errno

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

NEWNS, NEWUSER, NEWPID = 0x20000, 0x10000000, 0x20000000
RDONLY, NOSUID, NODEV, NOEXEC = 1, 2, 4, 8
REMOUNT, BIND, MOVE, REC = 32, 4096, 8192, 16384
UNBINDABLE, PRIVATE, SLAVE, SHARED = 1 << 17, 1 << 18, 1 << 19, 1 << 20
NOATIME, NODIRATIME, RELATIME, STRICTATIME = 1024, 2048, 1 << 21, 1 << 24
DETACH = 2
_PDEATHSIG_SET, _PDEATHSIG_GET, _DUMPABLE_SET = 1, 2, 4
_DEFAULT = 0
# How a signal says that `queue_signal` sent it.
QUEUED = -1
SIGKILL, SIGPIPE, SIGCHLD, SIGSTOP, SIGTSTP, SIGXFSZ = 9, 13, 17, 19, 20, 25


class _Int(_SimpleCData):  # type: ignore[type-arg]
    _type_ = "i"


class _Long(_SimpleCData):  # type: ignore[type-arg]
    _type_ = "L"


class _Text(_SimpleCData):  # type: ignore[type-arg]
    _type_ = "z"


class _Call(CFuncPtr):
    _flags_ = FUNCFLAG_CDECL | FUNCFLAG_USE_ERRNO
    _restype_ = _Int


_libc = dlopen(None, os.RTLD_NOW)  # type: ignore[arg-type]


def _call(name: str, *types: Any) -> Any:
    found = _Call(dlsym(_libc, name))
    found.argtypes = types
    return found


_mount = _call("mount", _Text, _Text, _Text, _Long, _Text)
_umount2 = _call("umount2", _Text, _Int)
_pivot_root = _call("pivot_root", _Text, _Text)
_unshare = _call("unshare", _Int)
_setns = _call("setns", _Int, _Int)
_prctl = _call("prctl", _Int, _Long, _Long, _Long, _Long)
_read_prctl = _Call(dlsym(_libc, "prctl"))
_sigqueue = _call("sigqueue", _Int, _Int, _Long)


class EngineRefused(Exception):
    """The engine cannot do what it was asked; said as Cordée says errors: what, what was given, what to do next.

    Attributes:
        code: the exit code: 125, the engine's own, or that of a signal.
    """

    def __init__(self, text: str, given: Optional[str] = None, next: Optional[str] = None, code: int = 125) -> None:
        super().__init__(text)
        self.code = code
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
        number = get_errno()
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
    _done(_mount(_bytes(source), os.fsencode(target), _bytes(kind), flags, given), target)


def unmount(target: str) -> None:
    """Take a mount away at once; what still uses it keeps it until it lets go.

    Raises:
        OSError: it is no mount, or it is locked.
    """
    _done(_umount2(os.fsencode(target), DETACH), target)


def pivot(folder: str) -> None:
    """Make `folder` the root and leave the old one on top of it, to be unmounted.

    Raises:
        OSError: `folder` is no mount, or the root is an initial RAM disk.
    """
    os.chdir(folder)
    _done(_pivot_root(b".", b"."), folder)


def unshare(flags: int) -> None:
    """Leave namespaces, as unshare(2).

    Raises:
        OSError: not permitted, or there are too many.
    """
    _done(_unshare(flags), "unshare")


def enter_namespace(descriptor: int, kind: int) -> None:
    """Join the namespace behind an open file.

    Raises:
        OSError: not permitted.
    """
    _done(_setns(descriptor, kind), "setns")


def die_with_parent(number: int = SIGKILL) -> None:
    """Have this process sent a signal when the thread that started it ends; 0: none."""
    _prctl(_PDEATHSIG_SET, number, 0, 0, 0)


def dies_with_parent() -> int:
    """Return the signal that this process gets when its parent ends; 0: none."""
    number = _Int(0)
    _read_prctl(_PDEATHSIG_GET, byref(number))
    return int(number.value)


def let_own_processes_look() -> None:
    """Let processes of the same user open this one's namespaces again, which new rights had ended."""
    _prctl(_DUMPABLE_SET, 1, 0, 0, 0)


def has_terminal() -> bool:
    """Return whether this process has a terminal that sends signals to its group."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True


def block_signals() -> set[int]:
    """Block every signal and return those that were blocked before."""
    return {int(number) for number in _signal.pthread_sigmask(_signal.SIG_BLOCK, _signal.valid_signals())}


def set_signals(blocked: set[int]) -> None:
    """Block the signals that `block_signals` returned, and no other."""
    _signal.pthread_sigmask(_signal.SIG_SETMASK, blocked)


def pending_signals() -> set[int]:
    """Return the blocked signals that wait to be taken."""
    return {int(number) for number in _signal.sigpending()}


def restore_ignored() -> None:
    """Set to default the signals that Python ignores, before a command is executed."""
    for number in (SIGPIPE, SIGXFSZ):
        default_signal(number)


def default_signal(number: int) -> None:
    """Let a signal do what it does by default."""
    _signal.signal(number, _DEFAULT)


def wait_signal() -> tuple[int, int]:
    """Wait for a blocked signal; return (number, code): at most 0 when a process sent it, QUEUED by `queue_signal`."""
    found = _signal.sigwaitinfo(_signal.valid_signals())
    return found.si_signo, found.si_code


def queue_signal(pid: int, number: int) -> None:
    """Send a signal that tells itself apart from those that others send; a process that is gone is no fault."""
    _sigqueue(pid, number, 0)


def exit_code(status: int) -> int:
    """Return the exit code of a wait status; 128 and the signal for one that was killed."""
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def end(children: list[int]) -> None:
    """Kill children of this process and bury them."""
    for pid in children:
        os.kill(pid, SIGKILL)
        os.waitpid(pid, 0)
