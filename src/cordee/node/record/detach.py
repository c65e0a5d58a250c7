"""A process of one's own that is nobody's child and holds nobody's files."""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
from typing import Callable

from cordee.runs.folder import say

_PR_SET_NAME = 15
_IGNORED = ("SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGUSR1", "SIGUSR2", "SIGPIPE", "SIGTSTP", "SIGTTIN", "SIGTTOU")


def start_detached(work: Callable[[], None], *, keep: int) -> None:
    """Run `work` in a session of its own, as a grandchild whose parent is gone; a failure to fork is said and forgotten.

    It keeps one file of this process, so that pipes and locks of the caller end when the caller ends them. Signals that
    reach all of a job (a terminal's, a scheduler's) do not end it; SIGKILL does.

    Args:
        work: what it does; its exceptions end it silently.
        keep: the descriptor that it keeps.
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


def _settle(keep: int) -> None:
    for name in _IGNORED:
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    if keep < 3:  # the caller was started without one of the three
        keep = fcntl.fcntl(keep, fcntl.F_DUPFD_CLOEXEC, 3)
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        if descriptor != nothing:
            os.dup2(nothing, descriptor)
    most = os.sysconf("SC_OPEN_MAX")
    os.closerange(3, keep)
    os.closerange(keep + 1, most if most > 0 else 65536)
    os.chdir("/")
    ctypes.CDLL(None).prctl(_PR_SET_NAME, b"cordee-sampler", 0, 0, 0)
