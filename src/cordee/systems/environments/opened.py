"""Which files of an image a command opens: modules, shared libraries, data and programs, by the calls that open them."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress

from cordee.core.errors import CordeeError
from cordee.systems.environments.node.engines.namespace.call_filter import (
    OWN_FOLDER,
    answer_calls,
    call_text,
    filter_calls,
)

# By processor: calls that open or run a file, with where their path is among the arguments, and the folder's descriptor before
# it, if there is one (asm/unistd.h of Linux): open, execve, openat, execveat, openat2.
_CALLS = {
    "x86_64": {2: 0, 59: 0, 257: 1, 322: 1, 437: 1},
    "aarch64": {221: 0, 56: 1, 281: 1, 437: 1},
}
_RUN = {"x86_64": (59, 322), "aarch64": (221, 281)}


def observe(argv: Sequence[str], env: Mapping[str, str], output: int | None = None) -> tuple[int, set[str], set[str]]:
    """Run a command that starts a container, and return its exit code, the paths that processes in the container named, and which of them they ran.

    Args:
        argv, env: the command.
        output: a descriptor in the place of its standard output.

    Raises:
        CordeeError: the kernel does not tell.
    """
    machine = os.uname().machine
    calls, run = _CALLS.get(machine, {}), _RUN.get(machine, ())
    mine, other = socket.socketpair()
    child = os.fork()
    if child == 0:
        _become(argv, env, output, other, calls)
    other.close()
    named: set[tuple[str, str, bool]] = set()
    host = _root_of(os.getpid())

    def take(pid: int, call: int, words: list[int]) -> None:
        with suppress(OSError, ValueError):
            if _root_of(pid) != host:
                at = calls[call]
                path = os.fsdecode(call_text(pid, words[at]))
                folder = ctypes.c_int32(words[0] & 0xFFFFFFFF).value if at else OWN_FOLDER
                link = "cwd" if folder == OWN_FOLDER else f"fd/{folder}"
                above = "" if path.startswith("/") else os.readlink(f"/proc/{pid}/{link}")
                named.add((above, path, call in run))

    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is the command's
    try:
        told = answer_calls(mine, take)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    finally:
        signal.signal(signal.SIGINT, before)
        mine.close()
    if not told:
        raise CordeeError(
            "this kernel does not say which files are opened", allowed="Linux 5.5 or newer, on x86_64 or aarch64"
        )
    found = {(os.path.normpath(f"{above}/{path}"), is_run) for above, path, is_run in named}
    return 128 - code if code < 0 else code, {path for path, _ in found}, {path for path, is_run in found if is_run}


def _become(
    argv: Sequence[str], env: Mapping[str, str], output: int | None, keeper: socket.socket, calls: Mapping[int, int]
) -> None:
    """Be the command, with its calls handed on; returns never."""
    try:
        if output is not None:
            os.dup2(output, 1)
        if filter_calls(keeper, calls):
            keeper.close()
            os.execve(argv[0], list(argv), dict(env))
    finally:
        os._exit(125)


def _root_of(pid: int) -> tuple[int, int]:
    found = os.stat(f"/proc/{pid}/root")
    return found.st_dev, found.st_ino
