"""What tests of disposable schedulers share."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

from cordee.machine.processes import tree as processes


def processes_of(folder: Path) -> dict[int, str]:
    """Return the processes that have a folder in their command line, with it."""
    found = {}
    for pid in processes.all_processes():
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            where = os.readlink(f"/proc/{pid}/cwd")
        except OSError:
            continue
        if str(folder) in words or where.startswith(str(folder)):
            found[pid] = words
    return found


def as_ordinary_user(use: Callable[[], None]) -> None:
    """Call a function in a child that is not root; a failure there is one here."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            if os.getuid() == 0:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
            assert os.getuid() != 0
            os.chdir("/")
            use()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
