"""Lets nothing of the user's be changed while a script is traced: no sandbox, but harm by accident is kept away.

Files that are opened to be written are /dev/null, folders are neither made nor removed, processes and connections are refused,
but for the child's own temporary folder.
"""

# mypy: ignore-errors
from __future__ import annotations

import builtins
import io
import os
import shutil
import signal
import sys

_CHANGES = (
    "mkdir", "makedirs", "remove", "unlink", "rename", "replace", "rmdir", "symlink", "link", "truncate", "chmod",
)  # fmt: skip
_REFUSED = {
    "subprocess.Popen", "os.system", "os.fork", "os.forkpty", "os.posix_spawn", "os.exec", "socket.connect",
    "sqlite3.connect", "os.kill", "os.killpg",
}  # fmt: skip


class RefusedAtPlanTime(PermissionError):
    """What no trace may do: start or end processes, connect, change files. Libraries that only look for a program go on without."""


def protect(scratch):
    """Refuse from now on what would change anything outside of the folder `scratch`."""
    plain_open, inside = io.open, os.path.realpath(scratch) + os.sep

    def ours(path):
        return isinstance(path, (str, bytes, os.PathLike)) and os.path.realpath(os.fsdecode(path)).startswith(inside)

    def reading(file, mode="r", *args, **kwargs):
        writes = any(letter in mode for letter in "wax+") and not isinstance(file, int) and not ours(file)
        return plain_open(os.devnull if writes else file, mode.replace("x", "w") if writes else mode, *args, **kwargs)

    io.open = builtins.open = reading
    for name in _CHANGES:
        plain = getattr(os, name)
        setattr(
            os,
            name,
            lambda path, *args, plain=plain, **kwargs: plain(path, *args, **kwargs) if ours(path) else None,
        )
    plain_rmtree = shutil.rmtree
    shutil.rmtree = lambda path, *args, **kwargs: plain_rmtree(path, *args, **kwargs) if ours(path) else None

    def refuse(event, args):
        if event in _REFUSED and not (event == "sqlite3.connect" and args[0] == ":memory:"):
            raise RefusedAtPlanTime(
                f"the script starts or ends a process, or connects ({event}), which is refused while it is traced"
            )
        writes = event == "open" and isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR)
        if writes and args[0] != os.devnull and not ours(args[0]):
            raise RefusedAtPlanTime(f"the script writes {args[0]}, which is refused while it is traced")

    sys.addaudithook(refuse)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
