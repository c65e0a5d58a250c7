"""What root may do and the root of a user's namespace may not: taken as done by a filter, owners kept beside the files.

A namespace that needs no help of root knows one user, and `chown` to any other fails in it. A seccomp filter (seccomp(2))
answers the calls that change who a process is with success, and hands those that change a file's owner to a process that
keeps the owner in an extended attribute of the file, from where it goes into the layer.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket

from cordee.systems.environments.node.engines.namespace.call_filter import (
    OWN_FOLDER,
    answer_calls,
    call_path,
    call_text,
    filter_calls,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

OWNER = "user.cordee.owner"
_NO_FOLLOW, _EMPTY_PATH = 0x100, 0x1000


# By processor: the calls that change owners, by what they take, and those that change who a process is (asm/unistd.h of Linux).
_OWNERS = {
    "x86_64": {92: "path", 93: "file", 94: "link", 260: "at"},
    "aarch64": {54: "at", 55: "file"},
}
_IDENTITY = {
    "x86_64": (105, 106, 113, 114, 116, 117, 119, 122, 123),
    "aarch64": (143, 144, 145, 146, 147, 149, 151, 152, 159),
}


def filter_process(keeper: socket.socket) -> None:
    """Put the filter around this process and all it starts, and hand the calls on owners to whoever reads `keeper`.

    A kernel or processor that has no such filter leaves the process as it is.
    """
    machine = os.uname().machine
    filter_calls(keeper, _OWNERS.get(machine, {}), _IDENTITY.get(machine, ()))


def keep_owners(keeper: socket.socket) -> None:
    """Answer calls on owners until nobody is left who could make one."""
    owners = _OWNERS.get(os.uname().machine, {})
    answer_calls(keeper, lambda pid, call, words: _keep(pid, owners[call], words))


def _keep(pid: int, kind: str, words: list[int]) -> int:
    """Keep the owner that a call sets; return the number of its failure, 0: none."""
    try:
        if kind == "file":
            return _write(f"/proc/{pid}/fd/{words[0] & 0xFFFFFFFF}".encode(), words[1], words[2], True)
        if kind != "at":
            return _write(call_path(pid, OWN_FOLDER, call_text(pid, words[0])), words[1], words[2], kind == "path")
        folder = ctypes.c_int32(words[0] & 0xFFFFFFFF).value
        path, flags = call_text(pid, words[1]), words[4]
        if not path and not flags & _EMPTY_PATH:
            return errno.ENOENT
        return _write(call_path(pid, folder, path), words[2], words[3], not path or not flags & _NO_FOLLOW)
    except OSError as error:
        return error.errno or errno.EIO


def _write(place: bytes, uid: int, gid: int, follow: bool) -> int:
    before = owner_of(place, follow) if follow else owner_of(place, False)
    os.stat(place, follow_symlinks=follow)
    kept = tuple(old if new & 0xFFFFFFFF == 0xFFFFFFFF else new & 0xFFFFFFFF for old, new in zip(before, (uid, gid)))
    if kept != before:
        try:
            os.setxattr(place, OWNER, b"%d:%d" % kept, follow_symlinks=follow)
        except OSError as error:
            # Links and the like take no attribute, some file systems none at all.
            if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.EACCES):
                raise
    return 0


def owner_of(place: bytes, follow: bool = False) -> tuple[int, int]:
    """Return (user, group) that a file was given; root where none was."""
    return _owner(place, follow) or (0, 0)


def _owner(place: bytes, follow: bool) -> Optional[tuple[int, int]]:
    try:
        uid, _, gid = os.getxattr(place, OWNER, follow_symlinks=follow).partition(b":")
        return int(uid), int(gid)
    except (OSError, ValueError):
        return None
