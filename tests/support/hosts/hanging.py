"""A file system that never answers, as a server that has gone away leaves behind.

`unshare --map-root-user --mount python -m support.hosts.hanging FOLDER COMMAND...` runs a command that
sees such a file system at FOLDER. It is a real one of FUSE, whose server never reads: whoever touches the folder waits in
the kernel, in state D. Nobody outside the command sees it, and it is gone when the command ends.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys


def hang(folder: str) -> int:
    """Mount a file system that never answers at `folder` and return the descriptor whose closing ends it.

    Raises:
        OSError: this process may not mount: it needs a mount namespace of its own.
    """
    descriptor = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    options = f"fd={descriptor},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()}"
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"hanging", os.fsencode(folder), b"fuse", 0, options.encode()) != 0:
        error = ctypes.get_errno()
        os.close(descriptor)
        raise OSError(error, os.strerror(error), folder)
    return descriptor


def main(arguments: list[str]) -> int:
    """Run the command of `arguments[1:]` with a hanging file system at `arguments[0]`; returns its exit code."""
    descriptor = hang(arguments[0])
    try:
        return subprocess.run(arguments[1:], check=False).returncode
    finally:
        os.close(descriptor)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
