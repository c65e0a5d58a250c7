"""Calls to the kernel that processes make, handed to another process, which looks at them and answers (seccomp(2), user notification)."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import select
import socket
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Iterable, Optional

_SET_NO_NEW_PRIVS, _SET_MODE_FILTER, _NEW_LISTENER = 38, 1, 8
_ALLOW, _ERRNO, _NOTIFY = 0x7FFF0000, 0x00050000, 0x7FC00000
_LOAD, _EQUAL, _RETURN = 0x20, 0x15, 0x06
_RECEIVE, _SEND, _CONTINUE = 0xC0502100, 0xC0182101, 1
_NOTIFICATION = struct.Struct("=QIIiIQ6Q")
_ANSWER = struct.Struct("=QqiI")
_PATH_BYTES, _PAGE = 4096, 4096
# The folder of a call that takes paths from the process's own one on (AT_FDCWD).
OWN_FOLDER = -100
# By processor: how the kernel names it to filters, and the number of seccomp(2).
_MACHINES = {"x86_64": (0xC000003E, 317), "aarch64": (0xC00000B7, 277)}


def filter_calls(keeper: socket.socket, handed: Iterable[int], done: Iterable[int] = ()) -> bool:
    """Put a filter around this process and all it starts; return whether the kernel can hand calls on.

    Args:
        keeper: who reads its other end answers calls, by `answer_calls`.
        handed: numbers of the calls that are handed on; where they cannot be, they are taken as done.
        done: numbers of those that are answered with success and not done.
    """
    machine = _MACHINES.get(os.uname().machine)
    libc = ctypes.CDLL(None, use_errno=True)
    if machine is None or libc.prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        return False
    handed, done = list(handed), list(done)
    listener = _install(libc, machine, [(each, _NOTIFY) for each in handed], done, _NEW_LISTENER)
    if listener < 0:  # before Linux 5.0
        if done:
            _install(libc, machine, [(each, _ERRNO) for each in handed], done, 0)
        return False
    socket.send_fds(keeper, [b"x"], [listener])
    os.close(listener)
    return True


def _install(
    libc: ctypes.CDLL, machine: tuple[int, int], handed: list[tuple[int, int]], done: list[int], flags: int
) -> int:
    lines = [(_LOAD, 0, 0, 4), (_EQUAL, 1, 0, machine[0]), (_RETURN, 0, 0, _ALLOW), (_LOAD, 0, 0, 0)]
    for number, answer in [*handed, *((each, _ERRNO) for each in done)]:
        lines += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, answer)]
    lines.append((_RETURN, 0, 0, _ALLOW))
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *line) for line in lines))
    program = ctypes.create_string_buffer(struct.pack("=HxxxxxxQ", len(lines), ctypes.addressof(code)))
    return int(libc.syscall(machine[1], _SET_MODE_FILTER, flags, program))


def answer_calls(keeper: socket.socket, take: Callable[[int, int, list[int]], Optional[int]]) -> bool:
    """Answer calls until nobody is left who could make one; return whether there is a filter that hands any on.

    Args:
        keeper: the other end of that of `filter_calls`.
        take: given process, number and arguments of a call, returns the number of its failure, 0 for none; None: the kernel
            does the call.
    """
    _, descriptors, _, _ = socket.recv_fds(keeper, 1, 1)
    if not descriptors:
        return False
    listener = descriptors[0]
    waiting = select.poll()
    waiting.register(listener, select.POLLIN)
    while True:
        if not any(event & select.POLLIN for _, event in waiting.poll()):
            return True
        asked = bytearray(_NOTIFICATION.size)
        try:
            fcntl.ioctl(listener, _RECEIVE, asked)
        except OSError as error:
            if error.errno in (errno.EINTR, errno.ENOENT):
                continue
            return True
        number, pid, _, call, _, _, *words = _NOTIFICATION.unpack(asked)
        failed = take(pid, call, words)
        try:
            fcntl.ioctl(
                listener, _SEND, bytearray(_ANSWER.pack(number, 0, -(failed or 0), _CONTINUE if failed is None else 0))
            )
        except OSError:
            pass  # who asked has ended


def call_text(pid: int, address: int) -> bytes:
    """Return a text that a call was given.

    Raises:
        OSError: the process has ended, or may not be looked into.
    """
    found = b""
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        while len(found) < _PATH_BYTES:
            at = address + len(found)
            memory.seek(at)
            piece = memory.read(_PAGE - at % _PAGE)
            found += piece
            if b"\0" in piece or not piece:
                break
    return found.partition(b"\0")[0]


def call_path(pid: int, folder: int, path: bytes) -> bytes:
    """Return where a path leads that a call was given, for a process that may look into that one.

    Args:
        folder: a descriptor of the process, or OWN_FOLDER.
    """
    if path.startswith(b"/"):
        return b"/proc/%d/root" % pid + path
    begin = b"/proc/%d/cwd" % pid if folder == OWN_FOLDER else b"/proc/%d/fd/%d" % (pid, folder)
    return begin + b"/" + path if path else begin
