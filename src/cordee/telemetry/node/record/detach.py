"""A process of one's own that is nobody's child and holds nobody's files."""

from __future__ import annotations

import fcntl
import os
import signal
from typing import Callable, Sequence

from cordee.runs.folder import say

_PR_SET_NAME = 15
_IGNORED = ("SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGUSR1", "SIGUSR2", "SIGPIPE", "SIGTSTP", "SIGTTIN", "SIGTTOU")


def start_detached(work: Callable[[], None], *, keep: Sequence[int]) -> None:
    """Run `work` in a session of its own, as a grandchild whose parent is gone; a failure to fork is said and forgotten.

    It keeps few files of this process, so that pipes and locks of the caller end when the caller ends them. Signals that
    reach all of a job (a terminal's, a scheduler's) do not end it; SIGKILL does.

    Args:
        work: what it does; its exceptions end it silently.
        keep: the descriptors that it keeps, each above 2.
    """
    try:
        child = os.fork()
    except OSError as error:
        say(f"cordee: nothing is sampled: {error}")
        return
    if child:
        try:
            os.waitpid(child, 0)
        except ChildProcessError:  # the caller's parent ignores SIGCHLD: nobody has to wait
            return
        return
    code = 1
    try:
        os.setsid()
        if os.fork() == 0:
            _settle(keep)
            work()
        code = 0
    finally:
        os._exit(code)


def above_streams(descriptor: int) -> int:
    """Return a descriptor above 2 for the same file, where the caller was started without one of the three."""
    if descriptor > 2:
        return descriptor
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 3)
    os.close(descriptor)
    return moved


def _settle(keep: Sequence[int]) -> None:
    for name in _IGNORED:
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        if descriptor != nothing:
            os.dup2(nothing, descriptor)
    for name in os.listdir("/proc/self/fd"):  # the limit may be a thousand million
        descriptor = int(name)
        if descriptor > 2 and descriptor not in keep:
            try:
                os.close(descriptor)
            except OSError:  # the listing's own
                continue
    os.chdir("/")
    import ctypes  # here, where nobody waits for it

    ctypes.CDLL(None).prctl(_PR_SET_NAME, b"cordee-sampler", 0, 0, 0)
